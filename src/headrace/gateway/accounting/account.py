"""The account of one request: opened when its head arrives, settled exactly once, whatever happens.

Settling writes the ledger record, the log line and the metrics. Counterpart: `ledger/record.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headrace.domain.errors import ERRORS, ErrorCode, Outcome
from headrace.domain.ids import RequestUid
from headrace.domain.tenant import Caller
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.accounting.counters import Counters, ModelCounters
from headrace.gateway.accounting.log_line import LogLine
from headrace.ledger.record import RequestRecord, encode_record

COMPLETED = Outcome.COMPLETED.value
SERVICE = "headrace-gateway"
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


@dataclass(slots=True, eq=False)
class Account:
    """What is known of one request so far. With slots, as `Exchange`. Concurrency: event loop only."""

    books: Books
    uid: RequestUid
    request_id: str
    trace_id: str
    received_at: float
    is_settled: bool = False
    began_mono_s: float = 0.0
    """When the request was complete; 0 while it is not."""
    dispatched_mono_s: float | None = None
    """First attempt sent to an engine."""
    left_queue_mono_s: float | None = None
    """It left the queue without ever being dispatched."""
    first_output_mono_s: float | None = None
    caller: Caller | None = None
    refused: Caller | None = None
    """Who it is, where that is known and the request was refused all the same."""
    dialect: str | None = None
    model: str | None = None
    """Declared name only."""
    counted: ModelCounters | None = None
    """Counters of that model."""
    pool: str | None = None
    endpoint: str | None = None
    engine: str | None = None
    is_stream: bool = False
    attempts: int = 0
    usage: TokenUsage = UNKNOWN_USAGE
    output_events: int = 0
    """Output events the caller was sent: its output tokens, where the engine gave no usage (cut, cancelled)."""
    detail: str | None = None
    request_class: str | None = None
    gpu_s: float | None = None
    """Attributed by the quota, as the cost is."""
    cost_nanos: int | None = None
    price_version: str | None = None
    degraded: str | None = None
    """What was changed about the request so that it need not be refused."""
    chosen_model: str | None = None
    """The declared model that answered, where it is another than was asked for."""

    def settle(self, code: ErrorCode | None, http_status: int | None, now_mono_s: float) -> None:
        """End the request: the first call counts, later ones do nothing. `code` None: completed."""
        if self.is_settled:
            return
        self.is_settled = True
        books, began = self.books, self.began_mono_s
        outcome, code_text = (COMPLETED, None) if code is None else (ERRORS[code].outcome.value, code.value)
        e2e_s = now_mono_s - began if began else None
        ttft_s = self.first_output_mono_s - began if self.first_output_mono_s is not None else None
        left_queue = self.dispatched_mono_s if self.dispatched_mono_s is not None else self.left_queue_mono_s
        queue_s = left_queue - began if left_queue is not None else None
        usage = self.usage
        output_tokens = usage.output_tokens
        if output_tokens is None and self.output_events:
            output_tokens = self.output_events
        tpot_s = None
        if ttft_s is not None and e2e_s is not None and output_tokens is not None and output_tokens > 1:
            tpot_s = (e2e_s - ttft_s) / (output_tokens - 1)
        caller = self.caller or self.refused
        record = RequestRecord(  # by position: ten times cheaper than by name; a test pins the order
            self.uid,
            self.request_id,
            self.trace_id,
            self.received_at,
            caller.tenant if caller else None,
            caller.key_id if caller else None,
            self.dialect,
            self.model,
            self.pool,
            self.endpoint,
            self.is_stream,
            usage.input_tokens,
            usage.cached_input_tokens,
            output_tokens,
            queue_s,
            ttft_s,
            tpot_s,
            e2e_s,
            outcome,
            code_text,
            http_status,
            self.attempts,
            caller.organisation if caller else None,
            caller.project if caller else None,
            self.request_class,
            self.gpu_s,
            self.cost_nanos,
            self.price_version,
            self.degraded,
            self.chosen_model,
        )
        books.counters.requests += 1
        (self.counted or books.counters.unknown).count_end(record)
        if caller is not None:
            tenants = books.counters.tenants
            tenants.named.get(caller.tenant, tenants.other).count_end(record)
        books.record(encode_record(record))
        if books.line is not None:
            books.line(_encode_line(self._line(record)))

    def _line(self, record: RequestRecord) -> LogLine:
        return LogLine(  # by position, as above
            record.received_at,
            SERVICE,
            self.engine,
            record.requested_model,
            record.endpoint,
            record.request_id,
            self.trace_id,
            record.uid,
            record.tenant,
            record.key_id,
            record.dialect,
            record.stream,
            record.input_tokens,
            record.cached_input_tokens,
            record.output_tokens,
            None if record.ttft_s is None else int(record.ttft_s * 1e6) / 1e3,
            None if record.e2e_s is None else int(record.e2e_s * 1e6) / 1e3,
            record.outcome,
            record.code,
            record.http_status,
            record.attempts,
            self.detail,
            self.chosen_model,
        )
