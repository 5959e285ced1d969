"""An engine's init container: the program that fetches its model, run as in a pod, against a server that misbehaves."""

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fixtures.file_server import FileServer, Spoil, serving
from tests.harness.manifests import documents_of
from tests.harness.polling import wait_until
from tests.harness.render_cases import GGUF, GGUF_SHA256, HUB, declaration_text, rendered_text

from headrace.fleet.deploy.render.targets import Target

COMMIT = "c0ffee" + "0" * 34
WEIGHTS = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
CONFIG = b'{"hidden_size": 8}'
FILE_SOURCE = f"hf:org/model@{COMMIT}#model.gguf"
FILE_PATH = f"/org/model/resolve/{COMMIT}/model.gguf"
SNAPSHOT_SOURCE = f"hf:org/model@{COMMIT}"
SNAPSHOT_PATH = f"/org/model/resolve/{COMMIT}/model.safetensors"


class Pod:
    """Runs the init container's command with a volume that outlives it."""

    def __init__(self, volume: Path, server: FileServer) -> None:
        self.volume = volume
        self.environ = {
            "PATH": os.environ["PATH"],
            "HEADRACE_CACHE_DIR": str(volume),
            "HF_ENDPOINT": server.url,
            "HF_TOKEN": "hf-secret",
        }

    def command(self, *more: str, source: str = FILE_SOURCE) -> list[str]:
        words = [sys.executable, "-m", "headrace.fleet.deploy.models", "--source", source, *more]
        return [*words, "--sha256", SHA256] if source == FILE_SOURCE else words

    def run(
        self, *more: str, source: str = FILE_SOURCE, before: Callable[[], None] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*more, source=source),
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            preexec_fn=before,
        )

    def start(self, *more: str, source: str = FILE_SOURCE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*more, source=source),
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def blob(self) -> Path:
        return self.volume / "blobs" / "sha256" / SHA256

    @property
    def part_bytes(self) -> int:
        part = self.volume / "partial" / f"{SHA256}.part"
        return part.stat().st_size if part.exists() else 0


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as state:
        state.files[FILE_PATH] = WEIGHTS
        yield state


@pytest.fixture
def pod(server: FileServer, tmp_path: Path) -> Pod:
    return Pod(tmp_path / "volume", server)


@pytest.fixture
def hub(server: FileServer) -> FileServer:
    """A repository with a config and one shard."""
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(CONFIG) + CONFIG, usedforsecurity=False).hexdigest()
    siblings = [
        {"rfilename": "config.json", "size": len(CONFIG), "blobId": git_sha1},
        {"rfilename": "model.safetensors", "size": len(WEIGHTS), "lfs": {"sha256": SHA256}},
    ]
    listing = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    server.files[f"/api/models/org/model/revision/{COMMIT}"] = listing
    server.files[f"/org/model/resolve/{COMMIT}/config.json"] = CONFIG
    server.files[SNAPSHOT_PATH] = WEIGHTS
    return server


def test_a_dropped_connection_is_resumed(pod: Pod, server: FileServer) -> None:
    """After a drop only the missing bytes are asked for, and the pod goes on to start its engine."""
    server.spoils = [Spoil(drop_after_bytes=100_000)]
    done = pod.run()
    assert done.returncode == 0, done.stderr
    assert server.ranges(FILE_PATH) == [None, "bytes=100000-"]
    assert pod.blob.read_bytes() == WEIGHTS
    assert "failure 1 of 6" in done.stdout
    assert f"{FILE_SOURCE} is complete and checked at {pod.blob}" in done.stdout


def test_a_wrong_byte_is_detected(pod: Pod, server: FileServer) -> None:
    """The pod fails with both sums, and leaves nothing that an engine could load."""
    server.files[FILE_PATH] = WEIGHTS[:-1] + b"\x00"
    done = pod.run()
    assert done.returncode == 1
    assert "checksum mismatch, deleted" in done.stderr
    assert SHA256 in done.stderr
    assert not pod.blob.exists()
    assert pod.part_bytes == 0


def test_a_wrong_byte_in_a_shard_is_detected(pod: Pod, hub: FileServer) -> None:
    """A repository's files are checked against the sums that the hub gives; the folder never appears."""
    hub.files[SNAPSHOT_PATH] = b"\x01" + WEIGHTS[1:]
    done = pod.run(source=SNAPSHOT_SOURCE)
    assert done.returncode == 1
    assert "org/model/model.safetensors: checksum mismatch" in done.stderr
    assert not (pod.volume / "snapshots").exists() or not list((pod.volume / "snapshots").iterdir())


def test_a_stalled_transfer_is_taken_up_again(pod: Pod, server: FileServer) -> None:
    """Silence counts as a failure of that transfer only."""
    server.spoils = [Spoil(stall_after_bytes=200_000)]
    done = pod.run("--stall-timeout-s", "2")
    assert done.returncode == 0, done.stderr
    assert server.ranges(FILE_PATH) == [None, "bytes=200000-"]


def test_a_server_that_stalls_every_time_is_given_up(pod: Pod, server: FileServer) -> None:
    """The pod fails with the number of failures, and keeps what has arrived."""
    server.spoils = [Spoil(stall_after_bytes=1000)] + [Spoil(stall_after_bytes=0)] * 5
    done = pod.run("--stall-timeout-s", "2", "--attempts", "2")
    assert done.returncode == 1
    assert "gave up after 2 failures in a row" in done.stderr
    assert pod.part_bytes == 1000


def test_the_whole_fetch_has_a_bound(pod: Pod, server: FileServer) -> None:
    """However patient with each transfer, the fetch ends when its own time is over."""
    server.spoils = [Spoil(stall_after_bytes=1000)] * 50
    done = pod.run("--stall-timeout-s", "0.3", "--attempts", "100", "--total-timeout-s", "1.5")
    assert done.returncode == 1
    assert "the whole fetch may take 1.5 s, which are over" in done.stderr


def test_a_killed_pod_leaves_what_the_next_one_resumes(pod: Pod, server: FileServer) -> None:
    """A container that is killed midway costs only the bytes that had not arrived."""
    server.spoils = [Spoil(stall_after_bytes=300_000)]
    with pod.start() as process:
        wait_until(lambda: pod.part_bytes == 300_000, "300,000 bytes on disk")
        process.send_signal(signal.SIGKILL)
    done = pod.run()
    assert done.returncode == 0, done.stderr
    assert server.ranges(FILE_PATH) == [None, "bytes=300000-"]
    assert pod.blob.read_bytes() == WEIGHTS


def test_two_pods_on_one_volume_fetch_once(pod: Pod, server: FileServer) -> None:
    """The second waits for the first instead of writing into the same file."""
    server.spoils = [Spoil(stall_after_bytes=300_000)]
    with pod.start("--stall-timeout-s", "60") as first:
        wait_until(lambda: pod.part_bytes == 300_000, "the first pod's bytes")
        with pod.start("--stall-timeout-s", "60") as second:
            assert second.stdout is not None
            said = second.stdout.readline()
            assert said.startswith("waiting")
            assert "another process is fetching the same file" in said
            server.release.set()
            assert second.wait(60) == 0
        assert first.wait(60) == 0
    assert server.ranges(FILE_PATH) == [None, "bytes=300000-"]


def test_a_complete_file_needs_no_network(pod: Pod, server: FileServer) -> None:
    """A pod that comes back to its volume starts while the hub is away."""
    assert pod.run().returncode == 0
    pod.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
    assert pod.run().returncode == 0
    assert len(server.requests) == 1


def test_a_complete_repository_needs_no_network(pod: Pod, hub: FileServer) -> None:
    """A folder that carries the pinned commit's name is complete, whoever put it there."""
    assert pod.run(source=SNAPSHOT_SOURCE).returncode == 0
    shutil.rmtree(pod.volume / "records")
    pod.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
    done = pod.run(source=SNAPSHOT_SOURCE)
    assert done.returncode == 0, done.stderr
    assert f"checked at {pod.volume}/snapshots/org--model/{COMMIT}" in done.stdout


def test_a_redirect_is_followed_without_the_token(pod: Pod, server: FileServer) -> None:
    """Hubs send large files from elsewhere, which is not shown the credential."""
    with serving() as elsewhere:
        elsewhere.files["/blob"] = WEIGHTS
        server.redirects[FILE_PATH] = f"{elsewhere.url}/blob"
        done = pod.run()
        assert done.returncode == 0, done.stderr
        assert server.requests == [(FILE_PATH, None, "Bearer hf-secret")]
        assert elsewhere.requests == [("/blob", None, None)]


@pytest.mark.parametrize(
    ("status", "said"), [(401, "it needs credentials (HF_TOKEN for Hugging Face"), (404, "it does not exist there")]
)
def test_what_another_try_cannot_cure_is_not_tried_again(pod: Pod, server: FileServer, status: int, said: str) -> None:
    """A refusal ends the pod at once with what to do; the token is not shown."""
    server.spoils = [Spoil(status=status)]
    done = pod.run()
    assert done.returncode == 1
    assert f"HTTP {status}" in done.stderr
    assert said in done.stderr
    assert len(server.requests) == 1
    assert "hf-secret" not in done.stdout + done.stderr


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(pod: Pod, server: FileServer) -> None:
    """A volume smaller than the file ends the pod with both sizes."""
    pod.volume.mkdir()
    with contextlib.ExitStack() as cleanup:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(pod.volume)], capture_output=True, check=False
        )
        if mounted.returncode != 0:
            pytest.skip("a small file system cannot be mounted here")
        cleanup.callback(subprocess.run, ["umount", str(pod.volume)], check=True)
        done = pod.run()
    assert done.returncode == 1
    assert "not enough disk for org/model/model.gguf: 512,000 bytes are needed" in done.stderr


def test_a_write_that_fails_keeps_what_was_written(pod: Pod, server: FileServer) -> None:
    """A volume that takes no more bytes midway ends the pod with the system's words; nothing looks complete."""

    def bound_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    done = pod.run(before=bound_files)
    assert done.returncode == 1
    assert f"cannot write {pod.volume}/partial/{SHA256}.part: File too large" in done.stderr
    assert not pod.blob.exists()


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_the_engine_finds_what_the_rendered_init_container_fetched(tmp_path: Path, engine: str) -> None:
    """The command of the rendered init container, run as it stands, makes the path that the engine is started with."""
    path = tmp_path / "headrace.yaml"
    path.write_text(declaration_text(engine, "single").replace(GGUF_SHA256, SHA256))
    documents = documents_of(rendered_text(Target.KUBERNETES, path, (f"deployment.models.mount_path={tmp_path}/m",)))
    pod = next(one for one in documents if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    (fetch,), (served,) = pod["initContainers"], pod["containers"]
    with serving() as server:
        commit = HUB.rpartition("@")[2]
        siblings = [{"rfilename": "model.safetensors", "size": len(WEIGHTS), "lfs": {"sha256": SHA256}}]
        listing = json.dumps({"sha": commit, "siblings": siblings}).encode()
        server.files[f"/api/models/acme/chat-8b/revision/{commit}"] = listing
        server.files[f"/acme/chat-8b/resolve/{commit}/model.safetensors"] = WEIGHTS
        gguf = GGUF.removeprefix("hf:").replace("@", "/resolve/").replace("#", "/")
        server.files[f"/{gguf}"] = WEIGHTS
        env = {entry["name"]: entry["value"] for entry in fetch["env"] if "value" in entry}
        done = subprocess.run(
            [sys.executable, *fetch["args"]],
            env={**env, "HF_ENDPOINT": server.url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    place = next(Path(word) for word in served["args"] if word.startswith(str(tmp_path)))
    found = place if place.is_file() else place / "model.safetensors"
    assert found.read_bytes() == WEIGHTS
