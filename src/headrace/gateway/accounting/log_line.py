"""The shape of a line of the request log. Counterpart: `account.py`, which writes one for every request.

A module of its own, since `account.py` may be compiled (docs/decisions/0008), and a Struct with options may not.
"""

import msgspec


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The request log's line. Field names are those of docs/logs.md; never content, never keys."""

    timestamp: float
    service: str
    engine: str | None = None
    model: str | None = None
    endpoint: str | None = None
    request_id: str = ""
    trace_id: str = ""
    uid: str = ""
    tenant: str | None = None
    key_id: str | None = None
    dialect: str | None = None
    stream: bool = False
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    outcome: str = ""
    code: str | None = None
    status: int | None = None
    attempts: int = 0
    detail: str | None = None
    """Why it failed, as the operator needs it: which endpoint, what it did."""
    chosen_model: str | None = None
    """The declared model that answered, where it is another than `model`."""
