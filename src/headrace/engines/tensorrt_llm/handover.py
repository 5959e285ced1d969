"""TensorRT-LLM's words of a hand-over. Source: disaggregated_params.py, serve/openai_disagg_service.py; never run."""

import msgspec

from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.handover import FitRules, LegRequest, Ticket, WholeAnswer

KEPT_S = 60.0
"""How long a context's KV is counted on. Chosen: the server's own bound could not be looked at."""

UNFINISHED = ("length", "not_finished")
"""Finish reasons of a context request that has more to say."""

Members = dict[str, msgspec.Raw]
NULL = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    disaggregated_params: Members | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    prompt_token_ids: msgspec.Raw = NULL


class TensorrtLlmHandover:
    """See `handover.TicketWords`."""

    serves_whole = True
    """Without `disaggregated_params` a request is an ordinary one. Never run."""
    fit_rules = FitRules()
    """Stricter than TensorRT-LLM may be in parallel sizes: nothing was run. Number formats and tokens per block must be
    equal. Source: cpp/tensorrt_llm/batch_manager/cacheFormatter.cpp."""

    def prefill(self, attempt_id: str, api: ApiDialect) -> LegRequest:
        """See `handover.TicketWords`. Its id is a number of 63 bits, and never used twice."""
        params = {"request_type": "context_only", "disagg_request_id": number_of(attempt_id)}
        return LegRequest(
            fields={"stream": False, "disaggregated_params": params}, dropped=frozenset({"stream_options"})
        )

    def read_prefill(self, body: bytes, attempt_id: str, api: ApiDialect) -> Ticket | WholeAnswer | None:
        """See `handover.TicketWords`."""
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except UNDECODABLE:
            return None
        if len(answer.choices) != 1:
            return None
        choice = answer.choices[0]
        params = choice.disaggregated_params
        if choice.finish_reason not in (*UNFINISHED, None):
            return WholeAnswer()
        if params is None or "encoded_opaque_state" not in params:
            return None
        fields: dict[str, object] = {
            "disaggregated_params": {**params, "request_type": msgspec.Raw(b'"generation_only"')}
        }
        if answer.prompt_token_ids != NULL:
            is_chat = api is ApiDialect.CHAT_COMPLETIONS
            fields["prompt_token_ids" if is_chat else "prompt"] = answer.prompt_token_ids
        return Ticket(key=attempt_id, decode=LegRequest(fields=fields), usable_s=KEPT_S)


def number_of(attempt_id: str) -> int:
    """Return an attempt's id as a positive number of 63 bits (FNV-1a)."""
    found = 0xCBF29CE484222325
    for byte in attempt_id.encode():
        found = ((found ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return (found >> 1) or 1
