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
        books = self.books
        outcome, code_text = (COMPLETED, None) if code is None else (ERRORS[code].outcome.value, code.value)
        queue_s, ttft_s, e2e_s = self._times_s(now_mono_s)
        usage = self.usage
        input_tokens, cached_tokens, output_tokens = usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
        if output_tokens is None and self.output_events:
            output_tokens = self.output_events
        tpot_s = None
        if ttft_s is not None and e2e_s is not None and output_tokens is not None and output_tokens > 1:
            tpot_s = (e2e_s - ttft_s) / (output_tokens - 1)
        caller, tenant, key_id = self.caller, None, None
        if caller is not None:
            tenant, key_id = caller.tenant, caller.key_id
        record = self._record(
            tenant,
            key_id,
            input_tokens,
            cached_tokens,
            output_tokens,
            queue_s,
            ttft_s,
            tpot_s,
            e2e_s,
            outcome,
            code_text,
            http_status,
        )
        # Values are handed on from here rather than read from the record: a Struct's fields are dear once compiled.
        books.counters.requests += 1
        counted = self.counted or books.counters.unknown
        counted.count_end(outcome, code_text, input_tokens, cached_tokens, output_tokens)
        counted.count_times(queue_s, ttft_s, tpot_s, e2e_s, is_completed=code is None)
        if tenant is not None:
            self._count_tenant(tenant, outcome, input_tokens, cached_tokens, output_tokens)
        books.record(record)
        if books.line is not None:
            line = self._line(
                tenant,
                key_id,
                input_tokens,
                cached_tokens,
                output_tokens,
                ttft_s,
                e2e_s,
                outcome,
                code_text,
                http_status,
            )
            books.line(line)

    def _times_s(self, now_mono_s: float) -> tuple[float | None, float | None, float | None]:
        """From the complete request to its dispatch, its first token, and now."""
        began_mono_s, first_mono_s = self.began_mono_s, self.first_output_mono_s
        left_mono_s = self.dispatched_mono_s if self.dispatched_mono_s is not None else self.left_queue_mono_s
        return (
            left_mono_s - began_mono_s if left_mono_s is not None else None,
            first_mono_s - began_mono_s if first_mono_s is not None else None,
            now_mono_s - began_mono_s if began_mono_s else None,
        )

    def _record(
        self,
        tenant: str | None,
        key_id: str | None,
        input_tokens: int | None,
        cached_tokens: int | None,
        output_tokens: int | None,
        queue_s: float | None,
        ttft_s: float | None,
        tpot_s: float | None,
        e2e_s: float | None,
        outcome: str,
        code: str | None,
        http_status: int | None,
    ) -> bytes:
        caller = self.caller
        record = RequestRecord(  # by position: ten times cheaper than by name; a test pins the order
            self.uid,
            self.request_id,
            self.trace_id,
            self.received_at,
            tenant,
            key_id,
            self.dialect,
            self.model,
            self.pool,
            self.endpoint,
            self.is_stream,
            input_tokens,
            cached_tokens,
            output_tokens,
            queue_s,
            ttft_s,
            tpot_s,
            e2e_s,
            outcome,
            code,
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
        return encode_record(record)

    def _count_tenant(
        self,
        tenant: str,
        outcome: str,
        input_tokens: int | None,
        cached_tokens: int | None,
        output_tokens: int | None,
    ) -> None:
        counts = self.books.counters.tenants.of(tenant)
        counts.count_end(outcome, input_tokens, cached_tokens, output_tokens)
        counts.count_cost(self.gpu_s, self.cost_nanos)

    def _line(
        self,
        tenant: str | None,
        key_id: str | None,
        input_tokens: int | None,
        cached_tokens: int | None,
        output_tokens: int | None,
        ttft_s: float | None,
        e2e_s: float | None,
        outcome: str,
        code: str | None,
        http_status: int | None,
    ) -> bytes:
        line = LogLine(  # by position, as above
            self.received_at,
            SERVICE,
            self.engine,
            self.model,
            self.endpoint,
            self.request_id,
            self.trace_id,
            self.uid,
            tenant,
            key_id,
            self.dialect,
            self.is_stream,
            input_tokens,
            cached_tokens,
            output_tokens,
            None if ttft_s is None else int(ttft_s * 1e6) / 1e3,
            None if e2e_s is None else int(e2e_s * 1e6) / 1e3,
            outcome,
            code,
            http_status,
            self.attempts,
            self.detail,
            self.chosen_model,
        )
        return _encode_line(line)
