"""What an endpoint's engine is, by its own word: asked with each probe of those that hand prompts over.

Counterpart: `engines/self_report.py`, which understands the replies; `routing/disaggregation/fits.py`, which judges.
"""

import asyncio

import structlog

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply
from headrace.engines.kv_shape import KvShape
from headrace.engines.self_report import paths_of, read_self_report
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.questions import ask

log = structlog.get_logger("headrace.gateway")
BODY_BYTES = 1_048_576
"""SGLang's arguments have some twenty kilobytes; what is cut off cannot be read, and then nothing is known."""
NOT_THERE = (404, 405)
"""The engine has no such path; any other refusal says nothing of it."""


async def learn_shape(endpoint: Endpoint, told_after: int) -> int:
    """Ask, and keep what is told. Without a good answer in time an engine is what it said before, unless it was away.

    `told_after`: after how many of its outages it has said so; returns the same of now.
    """
    outages = endpoint.outages
    was_away = outages != told_after
    if was_away:
        endpoint.load.settings = {}  # of the process that was there before
    kind = EngineKind(endpoint.plan.engine)
    reply = await _ask(endpoint, paths_of(kind))
    is_answer = reply.status in (200, *NOT_THERE)
    if not is_answer and not was_away:
        return told_after
    before, found = endpoint.told_shape, read_self_report(kind, reply, endpoint.load.settings)
    if found != before:
        endpoint.told_shape = found
        if before is not None and before.version is not None and before.version != found.version:
            _tell(endpoint, before, found)
    return outages if is_answer else told_after


async def _ask(endpoint: Endpoint, paths: tuple[str, ...]) -> ProbeReply:
    """The reply of the first path that is there, all within the time of one probe."""
    reply = ProbeReply(status=None)
    try:
        async with asyncio.timeout(endpoint.plan.probe_timeout_s):
            for path in paths:
                reply = await ask(endpoint, path, timeout_s=endpoint.plan.probe_timeout_s, body_bytes=BODY_BYTES)
                if reply.status not in NOT_THERE:
                    return reply
    except TimeoutError:
        return ProbeReply(status=None, is_timeout=True)
    return reply


def _tell(endpoint: Endpoint, before: KvShape, found: KvShape) -> None:
    log.info(
        "an engine runs another version",
        endpoint=endpoint.endpoint_id,
        before=before.version,
        version=found.version or "not measured",
    )
