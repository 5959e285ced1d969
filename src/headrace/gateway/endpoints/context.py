"""How long a sequence an endpoint can hold, by its own word: asked once after each start of its engine."""

from typing import Any, cast

import msgspec

from headrace.engines.detection import context_tokens_of
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.questions import ask

PATH = "/v1/models"
"""vLLM, SGLang and llama.cpp say it there."""
BODY_BYTES = 1_048_576
"""A server of many adapters lists each; more is cut off, and then nothing is known."""


async def learn_context(endpoint: Endpoint) -> bool:
    """Ask, and keep what is told; returns whether that is something new."""
    before = endpoint.told_context_tokens
    reply = await ask(endpoint, PATH, timeout_s=endpoint.plan.probe_timeout_s, body_bytes=BODY_BYTES)
    endpoint.told_context_tokens = _read(reply.body, endpoint.plan.served_model) if reply.status == 200 else None
    return endpoint.told_context_tokens != before


def _read(body: bytes, served_model: str) -> int | None:
    """That of the model's own row, or of the only one."""
    try:
        document: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    listed = cast("dict[str, Any]", document).get("data") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return None
    rows = [cast("dict[str, Any]", row) for row in cast("list[Any]", listed) if isinstance(row, dict)]
    named = [row for row in rows if row.get("id") == served_model] or (rows if len(rows) == 1 else [])
    return context_tokens_of(named[0]) if named else None
