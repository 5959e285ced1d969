"""Brings the issuers' public keys, off the request path: at the start, regularly, and when a token names a new one.

What came is kept in run/, so that a restart does not depend on the issuer; these are public keys.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog

from headrace.declaration.identity_plan import IssuerPlan
from headrace.domain.clock import Clock
from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.identity.core.key_refresh import KeyRefresh
from headrace.gateway.identity.public_keys import JwksError, read_jwks
from headrace.gateway.identity.tokens import Issuer, TokenDesk
from headrace.gateway.tasks import keep
from headrace.whole_file import write_whole

DOCUMENT_BYTES = 1 << 20
"""Longest document that is read; a JWKS has a few kilobytes."""
ANSWER_S = 5.0
"""Bound for one document, from connecting to its last byte."""
WELL_KNOWN = "/.well-known/openid-configuration"
"""Source: OpenID Connect Discovery 1.0, section 4."""
log = structlog.get_logger("headrace.gateway")


class IssuerError(Exception):
    """The issuer brought no keys; the text says why."""


class _Configuration(msgspec.Struct, kw_only=True):
    issuer: str
    jwks_uri: str


class _Kept(msgspec.Struct, kw_only=True):
    """Keys on disk."""

    issuer: str
    fetched_at: float
    document: msgspec.Raw


class IssuerWatch:
    """One task per declared issuer. Concurrency: event loop only."""

    def __init__(self, desk: TokenDesk, folder: Path, clock: Clock) -> None:
        self._desk = desk
        self._folder = folder
        self._clock = clock
        self._issuers: dict[str, Issuer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def adopt(self, plans: tuple[IssuerPlan, ...], trusts: Mapping[str, ssl.SSLContext]) -> None:
        """Follow the declared issuers; one that is declared as before keeps its keys and its watch.

        `trusts`: how to trust each one's server, by its URL.
        """
        if plans == tuple(issuer.plan for issuer in self._issuers.values()):
            return
        before, self._issuers = self._issuers, {}
        for plan in plans:
            known = before.get(plan.issuer)
            if known is not None and known.plan == plan:
                self._issuers[plan.issuer] = known
                continue
            if (task := self._tasks.pop(plan.issuer, None)) is not None:
                task.cancel()
            issuer = self._begin(plan)
            self._issuers[plan.issuer] = issuer
            self._tasks[plan.issuer] = keep(partial(self._watch, issuer, trusts[plan.issuer]), f"keys of {plan.name}")
        for url in self._tasks.keys() - self._issuers.keys():
            self._tasks.pop(url).cancel()
        self._desk.adopt(self._issuers)

    @property
    def issuers(self) -> tuple[Issuer, ...]:
        """Those that are followed now."""
        return tuple(self._issuers.values())

    async def wait_first(self, bound_s: float) -> None:
        """Return once every issuer has brought keys, or the bound is over."""
        end_mono_s = monotonic() + bound_s
        while monotonic() < end_mono_s and not all(map(len, (one.keys for one in self._issuers.values()))):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # bounded, and any of them may be the last one

    def close(self) -> None:
        """End all watches."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _begin(self, plan: IssuerPlan) -> Issuer:
        issuer = Issuer(plan=plan, refresh=KeyRefresh(refresh_s=plan.refresh_s, keep_s=plan.keep_s))
        kept = _find_kept(self._file(plan), plan.issuer)
        if kept is not None:
            age_s = max(0.001, self._clock.wall_s() - kept.fetched_at)
            with contextlib.suppress(JwksError):
                issuer.keys = read_jwks(bytes(kept.document))
                issuer.refresh.note_fetched(monotonic(), age_s=age_s)
                issuer.fetched_at = kept.fetched_at
        return issuer

    async def _watch(self, issuer: Issuer, trust: ssl.SSLContext) -> None:
        """Look for keys until cancelled."""
        woken = asyncio.Event()
        issuer.wake = woken.set
        async with httpx.AsyncClient(verify=trust, timeout=ANSWER_S, trust_env=False) as client:
            while True:
                await self._look(issuer, client)
                wait_s = issuer.refresh.next_mono_s - monotonic()
                woken.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, wait_s)):
                        await woken.wait()

    async def _look(self, issuer: Issuer, client: httpx.AsyncClient) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                document = await fetch_jwks(issuer.plan, client)
            keys = read_jwks(document)
        except (IssuerError, JwksError, TimeoutError) as error:
            why = str(error) or f"no answer within {ANSWER_S:g} s"
            issuer.refresh.note_failed(monotonic())
            issuer.failed += 1
            if why != issuer.trouble:
                log.warning("keys of an issuer cannot be fetched", issuer=issuer.plan.name, reason=why)
            issuer.trouble = why
            return
        if issuer.trouble or keys.ids != issuer.keys.ids:
            log.info("keys of an issuer fetched", issuer=issuer.plan.name, keys=len(keys))
        issuer.trouble = ""
        issuer.refresh.note_fetched(monotonic())
        issuer.fetched += 1
        issuer.fetched_at = self._clock.wall_s()
        self._desk.take_keys(issuer, keys)
        self._keep(issuer.plan, document)

    def _file(self, plan: IssuerPlan) -> Path:
        return self._folder / f"jwks-{sha256(plan.issuer.encode()).hexdigest()[:16]}.json"

    def _keep(self, plan: IssuerPlan, document: bytes) -> None:
        kept = _Kept(issuer=plan.issuer, fetched_at=self._clock.wall_s(), document=msgspec.Raw(document))
        try:
            write_whole(self._file(plan), msgspec.json.encode(kept))
        except OSError as error:
            log.warning("keys of an issuer cannot be kept for a restart", issuer=plan.name, reason=str(error))


async def fetch_jwks(plan: IssuerPlan, client: httpx.AsyncClient) -> bytes:
    """Fetch the document of the issuer's keys.

    Raises: IssuerError.
    """
    url = plan.jwks_url
    if url is None:
        document = await _fetch(client, plan.issuer.rstrip("/") + WELL_KNOWN)
        try:
            found = msgspec.json.decode(document, type=_Configuration)
        except UNDECODABLE as error:
            raise IssuerError(f"{WELL_KNOWN} names no issuer and jwks_uri") from error
        if found.issuer != plan.issuer:
            raise IssuerError(f"{WELL_KNOWN} is of another issuer, {found.issuer[:100]!r}")
        url = found.jwks_uri
        if urlsplit(url).scheme != "https" and urlsplit(plan.issuer).scheme == "https":
            raise IssuerError(f"its keys are not behind https: {url[:100]}")
    return await _fetch(client, url)


async def _fetch(client: httpx.AsyncClient, url: str) -> bytes:
    content = bytearray()
    try:
        async with client.stream("GET", url, headers={"accept": "application/json"}) as response:
            if response.status_code != 200:
                raise IssuerError(f"{url} answered {response.status_code}")
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > DOCUMENT_BYTES:
                    raise IssuerError(f"{url} is longer than {DOCUMENT_BYTES} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise IssuerError(f"{url}: {error or type(error).__name__}") from error
    return bytes(content)


def _find_kept(path: Path, issuer: str) -> _Kept | None:
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (*UNDECODABLE, OSError):
        return None
    return kept if kept.issuer == issuer else None
