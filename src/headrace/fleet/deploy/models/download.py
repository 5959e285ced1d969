"""One file over HTTP into one partial file: resumed by Range, retried with back-off, bounded by time-outs."""

import random
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

from headrace.fleet.deploy.models.blobs import remove_quietly, require_space
from headrace.fleet.deploy.models.failure import ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, Meter

_PARTIAL_CONTENT = 206
_RANGE_NOT_SATISFIABLE = 416
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy:
    """How patient a fetch is."""

    connect_timeout_s: float = 15.0
    stall_timeout_s: float = 30.0
    """Longest silence within a transfer."""
    attempts: int = 6
    """Failures in a row without a single new byte after which the fetch gives up."""
    backoff_s: float = 0.5
    """Pause after the first failure; doubles, with jitter, up to `backoff_max_s`."""
    backoff_max_s: float = 20.0
    mismatch_rest_s: float = 3600.0
    """A file with a wrong checksum is not downloaded again by the same store for so long, whoever asks for it: each
    try costs the whole file. Chosen."""
    total_timeout_s: float | None = None
    """Longest time of the whole fetch, waiting for others and checking included; None: as long as bytes arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One file to download."""

    url: str
    what: str
    """For messages and progress."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    size_bytes: int | None = None
    """Where known beforehand."""


class _RetriedError(Exception):
    """A failure that another attempt may cure."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Downloader:
    """Holds the HTTP client of one fetch. Use as a context manager.

    Source of trust: the system's certificates, or SSL_CERT_FILE / SSL_CERT_DIR; proxies from the usual variables.
    """

    def __init__(self, policy: FetchPolicy, meter: Meter) -> None:
        self._policy = policy
        self._meter = meter
        timeout = httpx.Timeout(policy.stall_timeout_s, connect=policy.connect_timeout_s)
        self._client = httpx.Client(verify=ssl.create_default_context(), timeout=timeout, follow_redirects=True)

    def __enter__(self) -> "Downloader":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get_json(self, remote: Remote) -> httpx.Response:
        """Fetch a small document whole."""
        self._meter.enter(FetchPhase.RESOLVING, remote.what)
        failures = 0
        while True:
            try:
                response = self._client.get(remote.url, headers=dict(remote.headers))
                _refuse_error_status(response, remote)
                return response
            except (httpx.TransportError, _RetriedError) as error:
                failures += 1
                self._pause_or_give_up(remote, failures, error)

    def fetch(self, remote: Remote, part: Path) -> bool:
        """Download `remote` into `part`, going on from what is there. Returns whether old bytes were kept."""
        is_resumed = part.exists() and part.stat().st_size > 0
        failures = 0
        while True:
            before_bytes = _size_of(part)
            try:
                return self._transfer(remote, part) and is_resumed
            except (httpx.TransportError, _RetriedError) as error:
                failures = 1 if _size_of(part) > before_bytes else failures + 1
                self._pause_or_give_up(remote, failures, error)
            except OSError as error:
                raise ModelFetchError(f"cannot write {part}: {error.strerror}") from error

    def _transfer(self, remote: Remote, part: Path) -> bool:
        """Make one attempt. Returns whether the bytes already there were kept."""
        have_bytes = _size_of(part)
        if remote.size_bytes is not None and have_bytes == remote.size_bytes:
            return True
        headers = {"accept-encoding": "identity", **remote.headers}
        if have_bytes:
            headers["range"] = f"bytes={have_bytes}-"
        with self._client.stream("GET", remote.url, headers=headers) as response:
            if response.status_code == _RANGE_NOT_SATISFIABLE:
                return self._settle_unsatisfiable(response, part, have_bytes)
            _refuse_error_status(response, remote)
            is_continued = response.status_code == _PARTIAL_CONTENT
            if is_continued and _range_start(response) != have_bytes:
                remove_quietly(part)
                raise _RetriedError("the server continued at the wrong place; starting again")
            start_bytes = have_bytes if is_continued else 0
            self._write(response, remote, part, start_bytes)
        return is_continued

    def _write(self, response: httpx.Response, remote: Remote, part: Path, start_bytes: int) -> None:
        length = response.headers.get("content-length", "")
        left_bytes = int(length) if length.isdigit() else None
        total_bytes = start_bytes + left_bytes if left_bytes is not None else remote.size_bytes
        if left_bytes is not None:
            require_space(part.parent, left_bytes, remote.what)
        self._meter.enter(FetchPhase.DOWNLOADING, remote.what, done_bytes=start_bytes, total_bytes=total_bytes)
        with part.open("ab" if start_bytes else "wb") as file:
            for piece in response.iter_raw():
                file.write(piece)
                self._meter.add(len(piece))
        if total_bytes is not None and _size_of(part) != total_bytes:
            raise _RetriedError(f"{_size_of(part):,} of {total_bytes:,} bytes arrived")

    def _settle_unsatisfiable(self, response: httpx.Response, part: Path, have_bytes: int) -> bool:
        _, _, total = response.headers.get("content-range", "").partition("/")
        if total.isdigit() and int(total) == have_bytes:
            return True
        remove_quietly(part)
        raise _RetriedError("the partial file does not fit what the server has; starting again")

    def _pause_or_give_up(self, remote: Remote, failures: int, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if failures >= self._policy.attempts:
            raise ModelFetchError(
                f"{remote.what}: gave up after {failures} failures in a row at {shown_url(remote.url)} ({reason}). "
                "Check the network, proxy and certificates; what has arrived is kept and will be resumed"
            ) from error
        pause_s = min(self._policy.backoff_s * 2 ** (failures - 1), self._policy.backoff_max_s)
        pause_s *= 0.5 + random.random() / 2  # noqa: S311 (jitter, not a secret)
        if isinstance(error, _RetriedError) and error.retry_after_s is not None:
            pause_s = min(max(pause_s, error.retry_after_s), self._policy.backoff_max_s)
        note = f"failure {failures} of {self._policy.attempts}: {reason}; trying again"
        self._meter.enter(FetchPhase.RESOLVING, remote.what, note=note)
        self._meter.pause(pause_s)


def _refuse_error_status(response: httpx.Response, remote: Remote) -> None:
    status = response.status_code
    if status < httpx.codes.BAD_REQUEST:
        return
    if status == _TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        retry_after = response.headers.get("retry-after", "")
        raise _RetriedError(f"HTTP {status}", float(retry_after) if retry_after.isdigit() else None)
    hint = {
        401: "it needs credentials (HF_TOKEN for Hugging Face, user:password in PIP_INDEX_URL)",
        403: "the credentials do not allow it, or the model's licence was not accepted",
        404: "it does not exist there: check name, version and path",
    }.get(status, "check the source")
    raise ModelFetchError(f"{remote.what}: HTTP {status} from {shown_url(remote.url)}: {hint}")


def _range_start(response: httpx.Response) -> int | None:
    unit, _, rest = response.headers.get("content-range", "").partition(" ")
    start = rest.partition("-")[0]
    return int(start) if unit == "bytes" and start.isdigit() else None


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def shown_url(url: str) -> str:
    """Return `url` without user and password, for messages."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))
