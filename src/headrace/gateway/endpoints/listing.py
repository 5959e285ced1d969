"""What an engine says of its models: the names that it lists, how long a sequence it holds, whether it takes ours.

Asked before an endpoint is used after each start of its engine or change of its name, and while its name is refused.
A name that is not listed is no proof: adapters are loaded when they are asked for, and many servers take any name. The
engine's own refusal is one, given to a question that generates nothing.
"""

from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.detection import context_tokens_of
from headrace.gateway.endpoints.endpoint import ANSWERS, Endpoint
from headrace.gateway.endpoints.questions import ask

PATH = "/v1/models"
"""vLLM, SGLang, TensorRT-LLM and llama.cpp list them there."""
BODY_BYTES = 1_048_576
"""A server of many adapters lists each; more is cut off, and then nothing is known."""
REFUSED_AGAIN_S = 30.0
"""A refused name is asked for again after so long, where the list stays the same. Chosen: engines log each refusal."""


@dataclass(slots=True)
class Listing:
    """What is known of one endpoint's list. Concurrency: its prober's task alone."""

    asked_for: tuple[int, str] | None = None
    """Outages and declared name as of the last look."""
    refused_mono_s: float = 0.0

    def is_due(self, endpoint: Endpoint) -> bool:
        """Engines that headrace starts are given their names by it."""
        if endpoint.plan.is_run_here:
            return False
        return endpoint.refused_name != "" or self.asked_for != (endpoint.outages, endpoint.plan.served_model)

    async def look(self, endpoint: Endpoint) -> bool:
        """Ask, and keep what is told; returns whether the context is something new."""
        plan, before, listed_before = endpoint.plan, endpoint.told_context_tokens, endpoint.told_models
        self.asked_for = (endpoint.outages, plan.served_model)
        reply = await ask(endpoint, PATH, timeout_s=plan.probe_timeout_s, body_bytes=BODY_BYTES)
        rows = _rows(reply.body) if reply.status == 200 else []
        endpoint.told_context_tokens = _context_tokens(rows, plan.served_model)
        endpoint.told_models = tuple(str(row["id"]) for row in rows) or None
        if endpoint.told_models is None or plan.served_model in endpoint.told_models:
            endpoint.name_is_good()
            return endpoint.told_context_tokens != before
        is_known = endpoint.refused_name != "" and endpoint.told_models == listed_before
        if not is_known or monotonic() - self.refused_mono_s > REFUSED_AGAIN_S:
            await self._ask_for_name(endpoint)
        return endpoint.told_context_tokens != before

    async def _ask_for_name(self, endpoint: Endpoint) -> None:
        plan, question = endpoint.plan, endpoint.driver.dialect.continuation.tokenizing
        remark = f"{ANSWERS}; {endpoint.name_remedy()}, and may take others"
        if question is None:
            endpoint.name_is_good(remark)
            return
        fields = {question.text_field: "a", **question.flags, "model": plan.served_model}
        reply = await ask(
            endpoint,
            question.path,
            timeout_s=plan.probe_timeout_s,
            body_bytes=BODY_BYTES,
            method=b"POST",
            body=msgspec.json.encode(fields),
        )
        if endpoint.plan.served_model != plan.served_model:
            return  # declared anew meanwhile
        error = None if reply.status in (None, 200) else endpoint.driver.translate_error(reply.status or 0, reply.body)
        if error is not None and error.is_unknown_model:
            self.refused_mono_s = monotonic()
            endpoint.name_is_refused(f"{error.message}; {endpoint.name_remedy()}")
        else:
            endpoint.name_is_good(remark)


def _rows(body: bytes) -> list[dict[str, Any]]:
    """The models of a list, as far as it is one."""
    try:
        document: Any = msgspec.json.decode(body)
    except UNDECODABLE:
        return []
    listed = cast("dict[str, Any]", document).get("data") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return []
    rows = [cast("dict[str, Any]", row) for row in cast("list[Any]", listed) if isinstance(row, dict)]
    return [row for row in rows if isinstance(row.get("id"), str)]


def _context_tokens(rows: list[dict[str, Any]], served_model: str) -> int | None:
    """That of the model's own row, or of the only one."""
    named = [row for row in rows if row["id"] == served_model] or (rows if len(rows) == 1 else [])
    return context_tokens_of(named[0]) if named else None
