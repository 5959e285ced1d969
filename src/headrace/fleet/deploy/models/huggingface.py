"""Fetch from a Hugging Face repository over plain HTTPS: one file, or a snapshot of the whole repository.

Speaks two calls: `GET /api/models/REPO/revision/REV?blobs=true` (files with sizes and hashes) and
`GET /REPO/resolve/COMMIT/FILE`. Source: huggingface.co's Hub API documentation. HF_ENDPOINT and HF_TOKEN are honoured.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.fleet.deploy.models.blobs import (
    COPY_BYTES,
    BlobCache,
    remove_quietly,
    require_space,
    write_record,
)
from headrace.fleet.deploy.models.download import Downloader, Remote
from headrace.fleet.deploy.models.failure import ChecksumMismatchError, ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, Meter
from headrace.fleet.deploy.models.sources import HuggingFaceSource, is_safe_path
from headrace.whole_file import sync_folder

DEFAULT_ENDPOINT = "https://huggingface.co"


class _Lfs(msgspec.Struct):
    sha256: str


class _Sibling(msgspec.Struct, rename={"name": "rfilename", "blob_id": "blobId"}):
    name: str
    size: int | None = None
    blob_id: str | None = None
    lfs: _Lfs | None = None


class _Revision(msgspec.Struct):
    sha: str
    siblings: list[_Sibling] = []


class HuggingFaceHub:
    """The Hub as one fetch sees it."""

    def __init__(self, environ: Mapping[str, str], downloader: Downloader, cache: BlobCache, meter: Meter) -> None:
        self._endpoint = (environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        token = environ.get("HF_TOKEN")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._downloader = downloader
        self._cache = cache
        self._meter = meter

    def fetch_file(self, source: HuggingFaceSource, part: Path) -> bool:
        """Download the one file of `source` into `part`. Returns whether old bytes were kept."""
        assert source.file is not None
        return self._downloader.fetch(self._remote(source.repository, source.revision, source.file), part)

    def find_snapshot(self, source: HuggingFaceSource) -> Path | None:
        """Return the folder of that revision, where it is here.

        A folder that carries the commit's name is complete, since it is renamed into place last.
        """
        name = source.repository.replace("/", "--")
        snapshots = self._cache.folder("snapshots") / name
        commit = source.revision if source.is_pinned else self._known_commit(name, source.revision)
        known = snapshots / commit
        return known if known != snapshots and known.is_dir() else None

    def fetch_snapshot(self, source: HuggingFaceSource) -> Path:
        """Download every file of the repository at that revision; returns the folder."""
        name = source.repository.replace("/", "--")
        snapshots = self._cache.folder("snapshots") / name
        revision = self._read_revision(source)
        target = snapshots / revision.sha
        if not target.is_dir():
            staging = self._cache.partial_path(f"{name}-{revision.sha}")
            missing_bytes = sum(sibling.size or 0 for sibling in revision.siblings) - _size_below(staging)
            require_space(staging.parent, missing_bytes, f"{source.repository}@{source.revision}")
            for sibling in revision.siblings:
                self._fetch_sibling(source, revision.sha, sibling, staging)
            snapshots.mkdir(parents=True, exist_ok=True)
            staging.replace(target)
            sync_folder(snapshots)
        write_record(self._cache.record_path(self._record(name, source.revision)), revision.sha.encode())
        return target

    def _known_commit(self, name: str, revision: str) -> str:
        record = self._cache.record_path(self._record(name, revision))
        return record.read_text() if record.exists() else ""

    def _record(self, name: str, revision: str) -> str:
        return f"hf-{hashlib.sha256(f'{self._endpoint} {name}@{revision}'.encode()).hexdigest()}"

    def _read_revision(self, source: HuggingFaceSource) -> _Revision:
        path = f"/api/models/{source.repository}/revision/{quote(source.revision, safe='')}?blobs=true"
        what = f"{source.repository}@{source.revision}"
        response = self._downloader.get_json(Remote(url=self._endpoint + path, what=what, headers=self._headers))
        try:
            revision = msgspec.json.decode(response.content, type=_Revision)
        except UNDECODABLE as error:
            raise ModelFetchError(f"{what}: {self._endpoint} is not a Hugging Face hub ({error})") from error
        unsafe = [sibling.name for sibling in revision.siblings if not is_safe_path(sibling.name)]
        if unsafe or not revision.siblings or not revision.sha.isalnum():
            raise ModelFetchError(f"{what}: the repository is empty or names unsafe paths {unsafe}; not fetched")
        return revision

    def _fetch_sibling(self, source: HuggingFaceSource, commit: str, sibling: _Sibling, staging: Path) -> None:
        target = staging / sibling.name
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        for is_last_try in (False, True):
            self._downloader.fetch(self._remote(source.repository, commit, sibling.name, sibling.size), part)
            if not part.exists():
                part.touch()
            wanted, actual = self._checksums(sibling, part)
            if wanted == actual:
                part.replace(target)
                return
            remove_quietly(part)
            if is_last_try:
                raise ChecksumMismatchError(
                    f"{source.repository}/{sibling.name}: checksum mismatch, deleted. The hub says {wanted}, "
                    f"the download has {actual}. Try again; if it repeats, a proxy or mirror alters the file"
                )

    def _checksums(self, sibling: _Sibling, part: Path) -> tuple[str, str]:
        """Give the wanted and the actual checksum: SHA-256 of LFS files, git's blob SHA-1 of the others."""
        size_bytes = part.stat().st_size
        self._meter.enter(FetchPhase.VERIFYING, sibling.name, total_bytes=size_bytes)
        if sibling.lfs is not None:
            digest, wanted = hashlib.sha256(), sibling.lfs.sha256
        elif sibling.blob_id is not None:
            digest, wanted = hashlib.sha1(usedforsecurity=False), sibling.blob_id
            digest.update(f"blob {size_bytes}\0".encode())
        else:
            return "", ""
        with part.open("rb") as file:
            while piece := file.read(COPY_BYTES):
                digest.update(piece)
                self._meter.add(len(piece))
        return wanted, digest.hexdigest()

    def _remote(self, repository: str, revision: str, file: str, size_bytes: int | None = None) -> Remote:
        url = f"{self._endpoint}/{repository}/resolve/{quote(revision, safe='')}/{quote(file)}"
        return Remote(url=url, what=f"{repository}/{file}", headers=self._headers, size_bytes=size_bytes)


def _size_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
