"""Containers of rendered pods, run as their pods would: the user and folders that a kubelet gives them."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.file_server import serving
from tests.harness.manifests import Document, documents_of
from tests.harness.ports import free_port
from tests.harness.render_cases import declaration_text, rendered_text

from headrace.fleet.deploy.render.targets import Target

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of others")

AS_IN_A_POD = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--groups=65532")
"""A process without rights that does not own its volume, as in a pod. Its user stays the test's own, which must be able
to read Python; the volume's is another one instead."""
VOLUME_OWNER, VOLUME_GROUP = 12345, 65532


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder as a kubelet makes an emptyDir or a claim with fsGroup: of another user, writable for the group."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-volume-"))
    os.chown(folder, VOLUME_OWNER, VOLUME_GROUP)
    folder.chmod(0o2775)
    yield folder
    shutil.rmtree(folder)


def gateway_of(documents: list[Document]) -> tuple[dict[str, Any], str]:
    """Return the gateway's pod and its declaration."""
    pod = next(one for one in documents if one["kind"] == "Deployment" and one["metadata"]["name"] == "gateway")
    config = next(one for one in documents if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "gateway")
    return pod["spec"]["template"]["spec"], config["data"]["headrace.yaml"]


def status_of(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_the_gateway_starts_as_in_its_pod(tmp_path: Path, volume: Path) -> None:
    """With the rendered command, declaration, user and folders it lives, is not ready without engines, and drains."""
    path = tmp_path / "headrace.yaml"
    path.write_text(declaration_text("vllm", "single"))
    pod, declaration = gateway_of(documents_of(rendered_text(Target.KUBERNETES, path)))
    container = pod["containers"][0]
    assert pod["securityContext"]["fsGroup"] == VOLUME_GROUP
    port, control = free_port(), free_port()
    text = declaration.replace("0.0.0.0:7070", f"127.0.0.1:{port}").replace("0.0.0.0:7071", f"127.0.0.1:{control}")
    (volume / "headrace.yaml").write_text(text.replace("http://chat-pods:", "http://127.0.0.1:"))
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    env |= {name: value.replace("/var/lib/headrace", str(volume)) for name, value in env.items()}
    command = [*AS_IN_A_POD, sys.executable, *container["command"][1:], "--config", str(volume / "headrace.yaml")]
    with subprocess.Popen(
        command,
        env={**env, "PATH": os.environ["PATH"], "HEADRACE_CACHE_DIR": str(volume / "tmp")},
        cwd=volume,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline_mono_s = time.monotonic() + 60
        while status_of(f"http://127.0.0.1:{port}/health") != 200:
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
            assert time.monotonic() < deadline_mono_s
            time.sleep(0.1)
        assert status_of(f"http://127.0.0.1:{port}/ready") == 503
        assert status_of(f"http://127.0.0.1:{control}/metrics") == 200
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 0, said
    assert "hr-" not in said, "a key is in the pod's log"
    assert (volume / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("user", [(2000, 0), (65532, 65532)], ids=["vllm", "llamacpp"])
def test_engines_read_what_the_init_container_wrote(volume: Path, user: tuple[int, int]) -> None:
    """Weights that the fetching user wrote onto the volume are readable for the engine's, whoever that is."""
    with serving() as server:
        weights = b"weights" * 1000
        server.files["/org/model/resolve/" + "a" * 40 + "/model.gguf"] = weights
        words = ["--source", f"hf:org/model@{'a' * 40}#model.gguf"]
        sha256 = hashlib.sha256(weights).hexdigest()
        done = subprocess.run(
            [*AS_IN_A_POD, sys.executable, "-m", "headrace.fleet.deploy.models", *words, "--sha256", sha256],
            env={"HEADRACE_CACHE_DIR": str(volume), "HF_ENDPOINT": server.url, "PATH": os.environ["PATH"]},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    blob = volume / "blobs" / "sha256" / sha256
    read = subprocess.run(
        ["sha256sum", blob],
        user=user[0],
        group=user[1],
        extra_groups=[VOLUME_GROUP],
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.stdout.startswith(sha256), read.stderr
