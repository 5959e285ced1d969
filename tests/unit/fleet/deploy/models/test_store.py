"""Fetching one model file: complete, checked, resumed, shared, and clear when it cannot be had."""

import asyncio
import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest
from tests.fixtures.file_server import FileServer, Spoil

from headrace.fleet.deploy.models import FetchPhase, FetchProgress, ModelFetchError, ModelStore
from headrace.fleet.deploy.models import blobs as blobs_module
from headrace.fleet.deploy.models.download import FetchPolicy

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SOURCE = "hf:org/model@main#weights/model.gguf"
PATH = "/org/model/resolve/main/weights/model.gguf"


@pytest.fixture
def served(file_server: FileServer) -> FileServer:
    file_server.files[PATH] = CONTENT
    return file_server


def leftovers(cache_dir: Path) -> list[str]:
    return sorted(path.name for path in (cache_dir / "partial").iterdir())


async def test_a_file_is_fetched_once_and_found_by_its_checksum(store: ModelStore, served: FileServer, tmp_path: Path):
    """The first call downloads, the second finds the file without a request."""
    path = await store.ensure(SOURCE, SHA256)
    assert path == tmp_path / "cache" / "blobs" / "sha256" / SHA256
    assert path.read_bytes() == CONTENT
    assert await store.ensure(SOURCE, SHA256) == path
    assert len(served.requests) == 1
    assert leftovers(tmp_path / "cache") == []


async def test_the_token_reaches_the_hub(store: ModelStore, served: FileServer):
    """HF_TOKEN is sent as a bearer credential."""
    await store.ensure(SOURCE, SHA256)
    assert served.requests[0][2] == "Bearer hf-secret"


async def test_a_dropped_connection_is_resumed_where_it_broke(store: ModelStore, served: FileServer):
    """After a drop, only the missing bytes are asked for."""
    served.spoils = [Spoil(drop_after_bytes=100_000), Spoil(drop_after_bytes=50_000)]
    path = await store.ensure(SOURCE, SHA256)
    assert path.read_bytes() == CONTENT
    first, second, third = served.ranges(PATH)
    assert first is None
    assert (second, third) == ("bytes=100000-", "bytes=150000-")


async def test_a_stalled_transfer_is_given_up_and_resumed(store: ModelStore, served: FileServer):
    """Silence longer than the stall time-out counts as a failure of that attempt only."""
    served.spoils = [Spoil(stall_after_bytes=200_000)]
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT
    assert served.ranges(PATH)[1] == "bytes=200000-"


async def test_a_server_without_range_makes_the_fetch_start_again(store: ModelStore, served: FileServer):
    """A whole answer to a Range request replaces what was there instead of being appended."""
    served.spoils = [Spoil(drop_after_bytes=100_000), Spoil(is_deaf_to_range=True)]
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT


async def test_an_answer_from_the_wrong_place_makes_the_fetch_start_again(store: ModelStore, served: FileServer):
    """A 206 that begins elsewhere than asked is never appended."""
    served.spoils = [Spoil(drop_after_bytes=100_000), Spoil(shifted_range=True)]
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT


async def test_a_wrong_byte_deletes_the_file_and_names_both_sums(store: ModelStore, served: FileServer, tmp_path: Path):
    """A checksum mismatch leaves nothing behind and says what was wanted and what came."""
    served.files[PATH] = CONTENT[:-1] + b"\x00"
    actual = hashlib.sha256(served.files[PATH]).hexdigest()
    with pytest.raises(ModelFetchError, match="checksum mismatch, deleted") as caught:
        await store.ensure(SOURCE, SHA256)
    assert SHA256 in str(caught.value)
    assert actual in str(caught.value)
    assert leftovers(tmp_path / "cache") == []


async def test_a_wrong_file_is_not_downloaded_again_and_again(store: ModelStore, served: FileServer):
    """Replicas that try again, and their neighbours, are told so without a transfer; another checksum counts."""
    served.files[PATH] = CONTENT[:-1] + b"\x00"
    with pytest.raises(ModelFetchError, match="checksum mismatch"):
        await store.ensure(SOURCE, SHA256)
    requests = len(served.requests)
    with pytest.raises(ModelFetchError, match="Not downloaded again for 60 min, or until the declaration changes"):
        await store.ensure(SOURCE, SHA256)
    assert len(served.requests) == requests
    assert (await store.ensure(SOURCE, hashlib.sha256(served.files[PATH]).hexdigest())).exists()


async def test_a_wrong_file_is_downloaded_again_after_its_rest(served: FileServer, tmp_path: Path):
    """A mirror that was mended is believed in time; a command that is asked to fetch tries at once."""
    served.files[PATH] = CONTENT[:-1] + b"\x00"
    environ = {"HF_ENDPOINT": served.url}
    rested = ModelStore(tmp_path / "cache", environ=environ, policy=FetchPolicy(mismatch_rest_s=0.0))
    resting = ModelStore(tmp_path / "cache", environ=environ)
    for store in (rested, resting):
        with pytest.raises(ModelFetchError, match="checksum mismatch"):
            await store.ensure(SOURCE, SHA256)
    served.files[PATH] = CONTENT
    with pytest.raises(ModelFetchError, match="Not downloaded again"):
        await resting.ensure(SOURCE, SHA256)
    assert (await rested.ensure(SOURCE, SHA256)).read_bytes() == CONTENT
    assert (await resting.ensure(SOURCE, SHA256)).read_bytes() == CONTENT, "what another process has fetched is there"


async def test_a_spoilt_partial_file_is_replaced_not_reported(store: ModelStore, served: FileServer, tmp_path: Path):
    """Old bytes that do not belong to the file cost one fresh download, not an error."""
    partial = tmp_path / "cache" / "partial"
    partial.mkdir(parents=True)
    (partial / f"{SHA256}.part").write_bytes(b"x" * 1000)
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT


async def test_a_partial_file_longer_than_the_remote_is_replaced(store: ModelStore, served: FileServer, tmp_path: Path):
    """The server's 416 to a Range past the end leads to a fresh download."""
    partial = tmp_path / "cache" / "partial"
    partial.mkdir(parents=True)
    (partial / f"{SHA256}.part").write_bytes(b"x" * (len(CONTENT) + 10))
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT


async def test_busy_answers_are_tried_again(store: ModelStore, served: FileServer):
    """503 and 429 are retried with pauses."""
    served.spoils = [Spoil(status=503), Spoil(status=429)]
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT


async def test_a_refusal_is_not_tried_again(store: ModelStore, served: FileServer):
    """401 says at once that credentials are missing, and how to give them."""
    served.spoils = [Spoil(status=401)]
    with pytest.raises(ModelFetchError, match="HF_TOKEN"):
        await store.ensure(SOURCE, SHA256)
    assert len(served.requests) == 1


async def test_a_dead_server_is_given_up_after_the_attempts(tmp_path: Path):
    """Connection refused ends in an error that names the URL and what to check, never in a hang."""
    policy = FetchPolicy(connect_timeout_s=1, attempts=2, backoff_s=0.01)
    store = ModelStore(tmp_path, environ={"HF_ENDPOINT": "http://127.0.0.1:1"}, policy=policy)
    with pytest.raises(ModelFetchError, match=r"gave up after 2 failures in a row at http://127\.0\.0\.1:1"):
        await store.ensure(SOURCE, SHA256)


async def test_a_full_disk_is_told_before_anything_is_written(
    store: ModelStore, served: FileServer, monkeypatch: pytest.MonkeyPatch
):
    """Too little room is an error with both numbers."""
    monkeypatch.setattr(blobs_module, "DISK_MARGIN_BYTES", 1 << 60)
    with pytest.raises(ModelFetchError, match=r"not enough disk for org/model/weights/model\.gguf: 512,000 bytes"):
        await store.ensure(SOURCE, SHA256)


async def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path):
    """A file in the place of the cache folder is an error that names HEADRACE_CACHE_DIR."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ModelFetchError, match="HEADRACE_CACHE_DIR"):
        await ModelStore(blocked, environ={}).ensure(SOURCE, SHA256)


async def test_progress_shows_phases_bytes_and_total(store: ModelStore, served: FileServer):
    """Whoever waits sees what is being done and how far it is."""
    seen: list[FetchProgress] = []
    await store.ensure(SOURCE, SHA256, progress=seen.append)
    phases = list(dict.fromkeys(report.phase for report in seen))
    assert phases == [FetchPhase.DOWNLOADING, FetchPhase.VERIFYING, FetchPhase.DONE]
    assert seen[0].total_bytes == len(CONTENT)
    assert seen[0].what == "org/model/weights/model.gguf"


async def test_the_event_loop_stays_free_and_cancelling_keeps_what_came(
    store: ModelStore, served: FileServer, tmp_path: Path
):
    """A fetch can be cancelled while it waits; the next one goes on from there."""
    served.spoils = [Spoil(status=503)] * 2
    patient = ModelStore(
        tmp_path / "cache",
        environ={"HF_ENDPOINT": served.url},
        policy=FetchPolicy(backoff_s=30, backoff_max_s=30, attempts=9),
    )
    waiting = asyncio.Event()

    def note(report: FetchProgress) -> None:
        if "trying again" in report.note:
            waiting.set()

    task = asyncio.create_task(patient.ensure(SOURCE, SHA256, progress=note))  # noqa: TID251 (awaited below)
    await asyncio.wait_for(waiting.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)
    served.spoils = []
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == CONTENT


def _ensure_in_process(cache_dir: Path, url: str) -> None:
    ModelStore(cache_dir, environ={"HF_ENDPOINT": url}).ensure_now(SOURCE, SHA256)


def test_two_processes_fetch_the_same_file_once(served: FileServer, tmp_path: Path):
    """The second process waits for the first one's file instead of downloading it again."""
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_ensure_in_process, args=(tmp_path, served.url)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert len(served.ranges(PATH)) == 1


def test_a_killed_fetch_leaves_no_lock_behind(served: FileServer, tmp_path: Path):
    """After kill -9 in the middle of a download, the next process goes on at once."""
    served.spoils = [Spoil(stall_after_bytes=300_000)]
    context = multiprocessing.get_context("spawn")
    killed = context.Process(target=_ensure_in_process, args=(tmp_path, served.url))
    killed.start()
    part = tmp_path / "partial" / f"{SHA256}.part"
    for _ in range(3000):
        if part.exists() and part.stat().st_size >= 300_000:
            break
        killed.join(0.01)
    killed.kill()
    killed.join()
    path = ModelStore(tmp_path, environ={"HF_ENDPOINT": served.url}).ensure_now(SOURCE, SHA256)
    assert path.read_bytes() == CONTENT
    assert served.ranges(PATH)[-1] == "bytes=300000-"


async def test_a_local_file_is_used_where_it_is(store: ModelStore, tmp_path: Path):
    """file: needs no copy; with a checksum it is checked once and again only after a change."""
    file = tmp_path / "model.gguf"
    file.write_bytes(CONTENT)
    seen: list[FetchProgress] = []
    assert await store.ensure(f"file:{file}", SHA256) == file
    assert await store.ensure(f"file:{file}", SHA256, progress=seen.append) == file
    assert [report.phase for report in seen] == [FetchPhase.DONE]
    file.write_bytes(CONTENT + b"!")
    with pytest.raises(ModelFetchError, match="checksum mismatch"):
        await store.ensure(f"file:{file}", SHA256)
    assert file.exists()


async def test_a_missing_local_file_is_named(store: ModelStore, tmp_path: Path):
    """file: of nothing says so."""
    with pytest.raises(ModelFetchError, match="does not exist"):
        await store.ensure(f"file:{tmp_path / 'nothing'}")


async def test_a_remote_file_without_checksum_is_refused(store: ModelStore):
    """Nothing is downloaded that could not be checked."""
    with pytest.raises(ModelFetchError, match="sha256 is missing"):
        await store.ensure(SOURCE)


async def test_an_unknown_conversion_is_refused(store: ModelStore, tmp_path: Path):
    """The error lists what can be converted to."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"x")
    with pytest.raises(ModelFetchError, match="q4_0, q8_0"):
        await store.ensure(f"file:{file}", requantize="q2_k")


async def test_the_real_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without `environ`, the process's own variables count."""
    monkeypatch.setitem(os.environ, "HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ModelFetchError, match=r"127\.0\.0\.1:1"):
        await ModelStore(tmp_path, policy=FetchPolicy(attempts=1)).ensure(SOURCE, SHA256)
