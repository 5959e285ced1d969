"""The account of one request: opened when its head arrives, settled exactly once, whatever happens.

Settling writes the ledger record, the log line and the metrics. Counterpart: `ledger/record.py`.
"""

from collections.abc import Callable

import msgspec

from headrace.domain.errors import ERRORS, ErrorCode, Outcome
from headrace.domain.ids import RequestUid
from headrace.domain.tenant import Caller
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.accounting.counters import Counters
from headrace.ledger.record import RequestRecord, encode_record


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The request log's line. Field names are those of docs/logs.md; never content, never keys."""

    timestamp: float
    service: str = ""
    engine: str | None = None
    model: str | None = None
    endpoint: str | None = None
    request_id: str
    trace_id: str
    uid: str
    tenant: str | None = None
    key_id: str | None = None
    dialect: str | None = None
    stream: bool = False
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    outcome: str
    code: str | None = None
    status: int | None = None
    attempts: int = 0
    detail: str | None = None
    """Why it failed, as the operator needs it: which endpoint, what it did."""


_encode_line = msgspec.json.Encoder().encode


class Books:
    """Where accounts are settled: counters, and the sinks for records and log lines.

    `record` and `line` take encoded bytes, return at once and never raise; `line` is None where the log is off.
    """

    def __init__(
        self, counters: Counters, *, record: Callable[[bytes], None], line: Callable[[bytes], None] | None
    ) -> None:
        self.counters = counters
        self.record = record
        self.line = line


class Account:
    """What is known of one request so far. Concurrency: event loop only."""

    __slots__ = (
        "_books",
        "_is_settled",
        "_received_at",
        "_request_id",
        "_trace_id",
        "_uid",
        "attempts",
        "began_mono_s",
        "caller",
        "detail",
        "dialect",
        "dispatched_mono_s",
        "endpoint",
        "engine",
        "first_output_mono_s",
        "is_stream",
        "model",
        "output_events",
        "pool",
        "usage",
    )

    def __init__(self, books: Books, uid: RequestUid, request_id: str, trace_id: str, received_at: float) -> None:
        self._books = books
        self._uid = uid
        self._request_id = request_id
        self._trace_id = trace_id
        self._received_at = received_at
        self._is_settled = False
        self.began_mono_s = 0.0
        """When the request was complete; 0 while it is not."""
        self.dispatched_mono_s: float | None = None
        """First attempt sent to an engine."""
        self.first_output_mono_s: float | None = None
        self.caller: Caller | None = None
        self.dialect: str | None = None
        self.model: str | None = None
        """Declared name only."""
        self.pool: str | None = None
        self.endpoint: str | None = None
        self.engine: str | None = None
        self.is_stream = False
        self.attempts = 0
        self.usage: TokenUsage = UNKNOWN_USAGE
        self.output_events = 0
        """Output events the caller was sent: its output tokens, where the engine gave no usage (cut, cancelled)."""
        self.detail: str | None = None

    @property
    def is_settled(self) -> bool:
        return self._is_settled

    def settle(self, code: ErrorCode | None, http_status: int | None, now_mono_s: float) -> None:
        """End the request: the first call counts, later ones do nothing. `code` None: completed."""
        if self._is_settled:
            return
        self._is_settled = True
        outcome = Outcome.COMPLETED if code is None else ERRORS[code].outcome
        counters = self._books.counters.of(self.model)
        self._books.counters.requests += 1
        ended = counters.ended
        key = (outcome.value, "" if code is None else code.value)
        ended[key] = ended.get(key, 0) + 1
        began = self.began_mono_s
        e2e_s = now_mono_s - began if began else None
        ttft_s = self.first_output_mono_s - began if self.first_output_mono_s is not None else None
        queue_s = self.dispatched_mono_s - began if self.dispatched_mono_s is not None else None
        input_tokens, output_tokens, cached = self._tokens()
        tpot_s = None
        if ttft_s is not None and e2e_s is not None and output_tokens is not None and output_tokens > 1:
            tpot_s = (e2e_s - ttft_s) / (output_tokens - 1)
        if queue_s is not None:
            counters.queue.observe(queue_s)
        if ttft_s is not None:
            counters.ttft.observe(ttft_s)
        if code is None and e2e_s is not None:
            counters.e2e.observe(e2e_s)
            if tpot_s is not None:
                counters.tpot.observe(tpot_s)
        counters.input_tokens += input_tokens or 0
        counters.cached_input_tokens += cached or 0
        counters.output_tokens += output_tokens or 0
        record = RequestRecord(
            uid=self._uid,
            request_id=self._request_id,
            trace_id=self._trace_id,
            received_at=self._received_at,
            tenant=self.caller.tenant if self.caller else None,
            key_id=self.caller.key_id if self.caller else None,
            dialect=self.dialect,
            requested_model=self.model,
            pool=self.pool,
            endpoint=self.endpoint,
            stream=self.is_stream,
            input_tokens=input_tokens,
            cached_input_tokens=cached,
            output_tokens=output_tokens,
            queue_s=queue_s,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            e2e_s=e2e_s,
            outcome=outcome.value,
            code=None if code is None else code.value,
            http_status=http_status,
            attempts=self.attempts,
        )
        self._books.record(encode_record(record))
        if self._books.line is not None:
            self._books.line(_encode_line(self._line(record)))

    def _tokens(self) -> tuple[int | None, int | None, int | None]:
        usage = self.usage
        output_tokens = usage.output_tokens
        if output_tokens is None and self.output_events:
            output_tokens = self.output_events
        return usage.input_tokens, output_tokens, usage.cached_input_tokens

    def _line(self, record: RequestRecord) -> LogLine:
        return LogLine(
            timestamp=record.received_at,
            service="headrace-gateway",
            engine=self.engine,
            model=record.requested_model,
            endpoint=record.endpoint,
            request_id=record.request_id,
            trace_id=self._trace_id,
            uid=record.uid,
            tenant=record.tenant,
            key_id=record.key_id,
            dialect=record.dialect,
            stream=record.stream,
            input_tokens=record.input_tokens,
            cached_input_tokens=record.cached_input_tokens,
            output_tokens=record.output_tokens,
            ttft_ms=None if record.ttft_s is None else round(record.ttft_s * 1000, 3),
            e2e_ms=None if record.e2e_s is None else round(record.e2e_s * 1000, 3),
            outcome=record.outcome,
            code=record.code,
            status=record.http_status,
            attempts=record.attempts,
            detail=self.detail,
        )
