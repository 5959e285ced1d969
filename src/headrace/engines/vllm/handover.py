"""vLLM's words of a hand-over with NIXL. Source: vLLM 0.33.0, kv_connector/v1/nixl; 0.32.0 run on CPU."""

from types import MappingProxyType

import msgspec

from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.handover import FitRules, LegRequest, TensorRule, Ticket, WholeAnswer

LEASE_S = 30.0
"""How long KV that nobody fetched is kept. Source: kv_lease_duration, which the launch line leaves at its default."""

ASKS_TO_HOLD = MappingProxyType(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)

NEEDED = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port", "remote_request_id")
"""Without one of them decode would end: it dies of `do_remote_prefill` alone."""

ONE_TOKEN_DROPS = frozenset({"stream_options", "min_tokens", "max_completion_tokens"})
"""Refused beside `stream: false`, above `max_tokens: 1`, or taken instead of it."""


NULL = msgspec.Raw(b"null")


class _Answer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = NULL


class VllmHandover:
    """See `handover.TicketWords`."""

    serves_whole = True
    """Source: vLLM 0.33.0, the NixlConnector guide: which engine does what is decided request by request."""
    fit_rules = FitRules(tensor=TensorRule.ONE_DIVIDES_OTHER, needs_equal_blocks=False)
    """Source: vLLM's compatibility matrix of the NIXL connector (dense and MoE models). Its metadata.py compares
    version, model, numbers and cache format before the first transfer; blocks of other sizes are mapped."""

    def prefill(self, attempt_id: str, api: ApiDialect) -> LegRequest:
        """See `handover.TicketWords`."""
        fields = {"stream": False, "max_tokens": 1, "kv_transfer_params": dict(ASKS_TO_HOLD)}
        return LegRequest(fields=fields, dropped=ONE_TOKEN_DROPS, headers={"x-request-id": attempt_id})

    def read_prefill(self, body: bytes, attempt_id: str, api: ApiDialect) -> Ticket | WholeAnswer | None:
        """See `handover.TicketWords`. The parameters go to decode byte for byte."""
        try:
            raw = msgspec.json.decode(body, type=_Answer).kv_transfer_params
            params = msgspec.json.decode(raw, type=dict[str, msgspec.Raw] | None)
            if params is None or any(params.get(name, NULL) == NULL for name in NEEDED):
                return None
            engine_id, request_id = (bytes(params[name]).decode() for name in ("remote_engine_id", "remote_request_id"))
        except UNDECODABLE:
            return None
        if params.get("do_remote_prefill") != msgspec.Raw(b"true"):
            return None
        decode = LegRequest(fields={"kv_transfer_params": raw}, headers={"x-request-id": attempt_id})
        return Ticket(key=f"{engine_id} {request_id}", decode=decode, usable_s=LEASE_S)
