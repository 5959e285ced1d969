"""A whole repository of a Hugging Face hub."""

import hashlib
import json
from pathlib import Path

import pytest
from tests.fixtures.file_server import FileServer, Spoil

from headrace.fleet.deploy.models import ModelFetchError, ModelStore

COMMIT = "c0ffee" + "0" * 34
WEIGHTS = b"tensor" * 30_000
CONFIG = b'{"hidden_size": 8}'
SOURCE = "hf:org/model@main"
WEIGHTS_PATH = f"/org/model/resolve/{COMMIT}/sub/model.safetensors"


def blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@pytest.fixture
def hub(file_server: FileServer) -> FileServer:
    """A hub with one repository of three files."""
    lfs = {"sha256": hashlib.sha256(WEIGHTS).hexdigest(), "size": len(WEIGHTS)}
    siblings = [
        {"rfilename": "config.json", "size": len(CONFIG), "blobId": blob_id(CONFIG)},
        {"rfilename": "sub/model.safetensors", "size": len(WEIGHTS), "blobId": "x", "lfs": lfs},
        {"rfilename": "empty.txt", "size": 0, "blobId": blob_id(b"")},
    ]
    file_server.files["/api/models/org/model/revision/main"] = json.dumps(
        {"sha": COMMIT, "siblings": siblings}
    ).encode()
    file_server.files[f"/org/model/resolve/{COMMIT}/config.json"] = CONFIG
    file_server.files[f"/org/model/resolve/{COMMIT}/empty.txt"] = b""
    file_server.files[WEIGHTS_PATH] = WEIGHTS
    return file_server


async def test_a_snapshot_is_fetched_whole_and_found_again(store: ModelStore, hub: FileServer, tmp_path: Path):
    """All files land in one folder named by the commit; the second start asks nothing."""
    folder = await store.ensure(SOURCE)
    assert folder == tmp_path / "cache" / "snapshots" / "org--model" / COMMIT
    assert (folder / "config.json").read_bytes() == CONFIG
    assert (folder / "sub" / "model.safetensors").read_bytes() == WEIGHTS
    assert (folder / "empty.txt").read_bytes() == b""
    asked = len(hub.requests)
    assert await store.ensure(SOURCE) == folder
    assert len(hub.requests) == asked


async def test_a_snapshot_cut_off_is_resumed_file_by_file(store: ModelStore, hub: FileServer, tmp_path: Path):
    """What has arrived is kept, and the folder appears only when complete."""
    hub.spoils = [Spoil(), Spoil(), Spoil(drop_after_bytes=1000), *[Spoil(status=503)] * 3]
    with pytest.raises(ModelFetchError, match="gave up"):
        await store.ensure(SOURCE)
    assert not (tmp_path / "cache" / "snapshots" / "org--model").exists()
    hub.spoils = []
    assert (await store.ensure(SOURCE)).is_dir()
    assert hub.ranges(WEIGHTS_PATH)[-1] == "bytes=1000-"
    assert len(hub.ranges(f"/org/model/resolve/{COMMIT}/config.json")) == 1


async def test_a_file_that_differs_from_the_hub_is_deleted(store: ModelStore, hub: FileServer):
    """Both kinds of checksum are checked: LFS SHA-256 and git's blob id."""
    hub.files[f"/org/model/resolve/{COMMIT}/config.json"] = CONFIG.replace(b"8", b"9")
    with pytest.raises(ModelFetchError, match=r"config\.json: checksum mismatch, deleted"):
        await store.ensure(SOURCE)
    asked = len(hub.requests)
    with pytest.raises(ModelFetchError, match="Not downloaded again"):
        await store.ensure(SOURCE)
    assert len(hub.requests) == asked, "a repository that is wrong today is not fetched over and over"


async def test_unsafe_names_are_refused(store: ModelStore, hub: FileServer, tmp_path: Path):
    """A repository cannot write outside its folder."""
    listing = {"sha": COMMIT, "siblings": [{"rfilename": "../../evil"}]}
    hub.files["/api/models/org/model/revision/main"] = json.dumps(listing).encode()
    with pytest.raises(ModelFetchError, match="unsafe"):
        await store.ensure(SOURCE)


async def test_an_answer_that_is_no_hub_is_named(store: ModelStore, hub: FileServer):
    """HF_ENDPOINT that points at something else says so."""
    hub.files["/api/models/org/model/revision/main"] = b"<html>"
    with pytest.raises(ModelFetchError, match="is not a Hugging Face hub"):
        await store.ensure(SOURCE)


async def test_a_folder_cannot_be_requantised(store: ModelStore, hub: FileServer):
    """requantize is for single GGUF files."""
    with pytest.raises(ModelFetchError, match="is a folder"):
        await store.ensure(SOURCE, requantize="q8_0")
