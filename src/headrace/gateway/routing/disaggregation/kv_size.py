"""How many bytes the KV of a prompt has: declared, else by the catalogue of models, else a guess.

A wrong guess does no harm to predictions, which are learned per byte: it only keeps bytes out of the metrics.
"""

from headrace.declaration.handover_plan import HandoverPlan
from headrace.declaration.model_source import HuggingFaceSource, parse_source
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.sizing.kv import KV_BYTES, token_bytes
from headrace.sizing.published import find_published

GUESSED_BYTES = 131_072.0
"""Of one token, where nothing is known. Source: Llama 3.1 8B in 16 bits: 32 layers x 8 heads x 128 x 2 x 2 bytes."""


class KvSizes:
    """By plan of a pool, worked out once."""

    def __init__(self) -> None:
        self._known: dict[HandoverPlan, float | None] = {}

    def is_known(self, endpoint: Endpoint) -> bool:
        return self._token_bytes(endpoint) is not None

    def size(self, endpoint: Endpoint, tokens: float) -> float:
        """Return the bytes of a prompt of so many tokens."""
        return tokens * (self._token_bytes(endpoint) or GUESSED_BYTES)

    def _token_bytes(self, endpoint: Endpoint) -> float | None:
        plan = endpoint.plan.handover
        if plan is None:
            return None
        if plan not in self._known:
            self._known[plan] = _token_bytes(plan)
        return self._known[plan]


def _token_bytes(plan: HandoverPlan) -> float | None:
    if plan.kv_bytes_per_token is not None:
        return float(plan.kv_bytes_per_token)
    source = None if plan.source is None else parse_source(plan.source)
    architecture = find_published(source.repository) if isinstance(source, HuggingFaceSource) else None
    is_sized = plan.kv_dtype == "auto" or plan.kv_dtype in KV_BYTES
    if architecture is None or not is_sized:
        return None
    return token_bytes(architecture, kv_dtype=plan.kv_dtype)
