"""Engines that run elsewhere, asked for their models: whether they answer, and to the declared name.

Never more than a warning: engines come and go, and the gateway waits for those that are away.
"""

import asyncio
from typing import NamedTuple

import httpx

from headrace.declaration.model import Declaration, Pool
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply
from headrace.engines.detection import detect
from headrace.fleet.deploy.engine_questions import ASK_S, MOST_AT_ONCE, ask_url, pool_client
from headrace.fleet.deploy.preflight.core.finding import Finding, ok, warn

LISTING = "/v1/models"
SHOWN_NAMES = 5
NAMELESS = (EngineKind.LLAMACPP,)
"""Engines that answer to any name."""


class _Asked(NamedTuple):
    key: str
    url: str
    pool: Pool


def check_endpoints(declaration: Declaration) -> tuple[Finding, ...]:
    """Ask every engine of pools with `endpoints`, all at the same time; empty without any."""
    asked = [
        _Asked(f"pools.{name}.endpoints[{number}]", url, pool)
        for name, pool in declaration.pools.items()
        for number, url in enumerate(pool.endpoints)
    ]
    return asyncio.run(_ask_all(asked)) if asked else ()


async def _ask_all(asked: list[_Asked]) -> tuple[Finding, ...]:
    gate = asyncio.Semaphore(MOST_AT_ONCE)
    return tuple(await asyncio.gather(*(_ask(one, gate) for one in asked)))


async def _ask(asked: _Asked, gate: asyncio.Semaphore) -> Finding:
    async with gate:
        try:
            async with asyncio.timeout(ASK_S):
                reply = await _listing(asked)
        except TimeoutError:
            return _away(asked, f"no answer in {ASK_S:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return _away(asked, str(error) or type(error).__name__)
    return _judge(asked, reply)


async def _listing(asked: _Asked) -> ProbeReply:
    async with pool_client(asked.pool) as client:
        return await ask_url(client, asked.url.rstrip("/") + LISTING, server_name=asked.pool.tls.server_name)


def _judge(asked: _Asked, reply: ProbeReply) -> Finding:
    where, pool = f"{asked.key} {asked.url}", asked.pool
    found = detect({LISTING: reply})
    if found.needs_credentials:
        credentials = asked.key.rpartition(".")[0] + ".credentials"
        seen = f"{where} refuses what it is shown: HTTP {reply.status}"
        return warn("endpoint", seen, needed="its key", remedy=f"Correct {credentials}.")
    if not found.models:
        if pool.engine is EngineKind.OPENAI or reply.status == 503:
            return warn("endpoint", f"{where} lists no models: GET {LISTING} gives HTTP {reply.status}")
        return _away(asked, f"GET {LISTING} gives HTTP {reply.status}, which is not {pool.engine.value}'s answer")
    name = pool.served_model or pool.model
    if name not in found.models and pool.engine not in NAMELESS:
        more = f" and {len(found.models) - SHOWN_NAMES} more" if len(found.models) > SHOWN_NAMES else ""
        seen = f"{where} serves {', '.join(found.models[:SHOWN_NAMES])}{more}, and no {name}"
        key = asked.key.rpartition(".")[0]
        return warn("endpoint", seen, needed="a model that it serves", remedy=f"Set {key}.served_model to one of them.")
    return ok("endpoint", f"{where} serves {name}" if name in found.models else f"{where} answers")


def _away(asked: _Asked, reason: str) -> Finding:
    return warn(
        "endpoint",
        f"{asked.key} {asked.url}: {reason}",
        needed=f"{asked.pool.engine.value} there",
        remedy="Start it, or correct the URL; --offline asks none.",
    )
