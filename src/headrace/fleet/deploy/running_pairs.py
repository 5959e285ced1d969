"""Whether prefill and decode engines that run elsewhere go together, asked of the engines: for `headrace check`.

The gateway asks the same while it runs (`gateway/endpoints/self_report.py`). Engines that do not answer are not
measured, and nothing is refused: a declaration is right or wrong whatever runs at the moment.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from headrace.declaration.handover_plan import compile_handover
from headrace.declaration.model import Declaration, Pool
from headrace.domain.routing_status import HandoverFit
from headrace.engines.contract import ProbeReply
from headrace.engines.handover import find_handover_words
from headrace.engines.kv_shape import KnownShape, KvShape, declared_shape
from headrace.engines.load import read_load
from headrace.engines.pairs import fit_of
from headrace.engines.registry import driver_for
from headrace.engines.self_report import paths_of, read_self_report
from headrace.fleet.deploy.engine_questions import ASK_S, MOST_AT_ONCE, ask_url, pool_client


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    pool: Pool
    name: str
    url: str
    role: str
    declared: KvShape


def running_pairs(declaration: Declaration) -> tuple[HandoverFit, ...]:
    """Ask the engines of pools with `endpoints` and a role, and judge each model's pairs; empty without any."""
    halves = [half for name, pool in declaration.pools.items() for half in _halves(declaration, name, pool)]
    return asyncio.run(_look(halves)) if halves else ()


def _halves(declaration: Declaration, name: str, pool: Pool) -> list[_Half]:
    plan = compile_handover(pool, declaration.models.get(pool.model))
    if plan is None or pool.discover == "dns" or find_handover_words(pool.engine) is None:
        return []
    shape = declared_shape(plan, pool.engine, pool.model)
    return [
        _Half(pool=pool, name=f"{name}/{url.partition('://')[2].rstrip('/')}", url=url, role=plan.role, declared=shape)
        for url in pool.endpoints
    ]


async def _look(halves: list[_Half]) -> tuple[HandoverFit, ...]:
    gate = asyncio.Semaphore(MOST_AT_ONCE)
    told = await asyncio.gather(*(_told(half, gate) for half in halves))
    known = [(half, KnownShape(declared=half.declared, told=one)) for half, one in zip(halves, told, strict=True)]
    fits: list[HandoverFit] = []
    for model in dict.fromkeys(half.pool.model for half in halves):
        ours = [(half, shape) for half, shape in known if half.pool.model == model]
        prefills = {half.name: shape for half, shape in ours if half.role != "decode"}
        decodes = {half.name: shape for half, shape in ours if half.role != "prefill"}
        found = fit_of(model, prefills, decodes)
        if found.fits or found.unfit or found.not_measured:
            fits.append(found)
    return tuple(fits)


async def _told(half: _Half, gate: asyncio.Semaphore) -> KvShape | None:
    """What an engine says of itself; None: it does not answer."""
    kind = half.pool.engine
    try:
        async with gate, asyncio.timeout(ASK_S), pool_client(half.pool) as client:
            reply = ProbeReply(status=None)
            for path in paths_of(kind):
                reply = await _ask(client, half, path)
                if reply.status not in (404, 405):
                    break
            return read_self_report(kind, reply, await _settings(client, half))
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return None


async def _settings(client: httpx.AsyncClient, half: _Half) -> Mapping[str, str]:
    """Labels of its page of metrics, where it has one that shows settings."""
    table = driver_for(half.pool.engine).metrics
    if table is None:
        return {}
    page = await _ask(client, half, table.path)
    return read_load(page.body.decode("utf-8", "replace"), table).facts if page.status == 200 else {}


async def _ask(client: httpx.AsyncClient, half: _Half, path: str) -> ProbeReply:
    return await ask_url(client, half.url.rstrip("/") + path, server_name=half.pool.tls.server_name)
