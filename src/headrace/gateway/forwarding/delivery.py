"""One request on its way: attempts at engines until one answers, its bytes back to the caller, and one end.

The shell of forwarding: policy is in `core/failover.py`, knowledge of streams in `streams/`. A callback machine rather
than a task, since a task with four awaits costs 6 microseconds (docs/decisions/0001).
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from random import random
from time import monotonic

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.engines.contract import EngineError
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding.core.failover import AttemptFailed, Decision, NextStep, decide
from headrace.gateway.forwarding.in_band import error_event
from headrace.gateway.forwarding.ports import FAILURE_TEXT, DeliveryAccount, Ending, ForwardingSettings, Meters
from headrace.gateway.forwarding.streams.watch import StreamWatch, watch_for
from headrace.gateway.forwarding.whole_answer import read_envelope, without_echo
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import LossReason
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.sse import EVENT_ENDS, EventCutter, EventTooLargeError
from headrace.gateway.http.wire import STREAM_HEAD

HEARTBEAT = b": heartbeat\n\n"
"""A comment: clients skip it. Source: HTML standard, section 9.2.6."""
TAIL_S = 5.0
"""An engine that has sent the end marker gets so long to end its HTTP message before it is cut. Chosen."""

DESERTED_S = 5.0
"""Longest silence within a stream of an engine that no longer listens. One that drains goes on sending; a vLLM 0.32.0
that was told to end can leave its streams open and silent for ever. Chosen."""


class Phase(Enum):
    PAUSE = auto()
    """Between two attempts."""
    SENT = auto()
    """Waiting for the head of an answer."""
    WHOLE = auto()
    ERROR = auto()
    STREAM = auto()
    TAIL = auto()
    """The caller has everything; the engine's message has not ended yet."""
    ENDED = auto()


PAUSE, SENT, WHOLE, ERROR, STREAM, TAIL, ENDED = Phase
"""Module names: looking a member up on its class costs a tenth of a microsecond, several times a request."""


@dataclass(slots=True, eq=False)
class Delivery:
    """Implements `AnswerReader` for the engine and `AnswerSource` for the caller. Concurrency: event loop only.

    With slots, as `Exchange`: its fields are set some twenty times a request.
    """

    request: InferenceRequest
    exchange: Exchange
    account: DeliveryAccount
    ending: Ending
    settings: ForwardingSettings
    meters: Meters
    reply_lines: bytes
    """Header lines of every answer: request id, trace, CORS."""
    extra_lines: bytes
    """Header lines of every attempt: trace, and at their end the request id, to which each attempt adds its number."""
    deadline_mono_s: float | None
    last_sent_mono_s: float
    """When the caller was last sent something; before that, when its request was complete."""
    phase: Phase = PAUSE
    tried: tuple[Endpoint, ...] = ()
    endpoint: Endpoint | None = None
    """Where the attempt under way is, and is counted in flight."""
    sending: Sending | None = None
    pause: asyncio.TimerHandle | None = None
    watch: StreamWatch | None = None
    cutter: EventCutter | None = None
    body: list[bytes] = field(init=False)
    """Of an answer that is no stream; there from its head on."""
    body_bytes: int = 0
    status: int = 0
    is_content_sent: bool = False
    """The commit point is passed: the caller has bytes of an answer."""
    is_paused: bool = False
    attempt_mono_s: float = 0.0
    last_block_mono_s: float = 0.0
    last_output_mono_s: float = 0.0

    def start(self) -> None:
        """Make the first attempt; whatever happens then ends in `Ending`, once."""
        self.exchange.source = self
        self.settings.budget.count_request()
        self._try_next()

    @property
    def is_over(self) -> bool:
        """Nothing is left to do or to watch."""
        return self.phase is ENDED

    # --- attempts

    def _try_again(self) -> None:
        try:
            self._try_next()
        except Exception as bug:  # noqa: BLE001 (boundary of this timer)
            self.crashed(bug)

    def _try_next(self) -> None:
        self.pause = None
        try:
            endpoint = self.settings.candidates.choose(self.request, self.tried)
        except RequestError as error:
            self._fail(error)
            return
        self.account.attempts += 1
        self.tried += (endpoint,)
        self._send(endpoint, fresh=False)

    def _send(self, endpoint: Endpoint, *, fresh: bool) -> None:
        request, account = self.request, self.account
        now = monotonic()
        if account.dispatched_mono_s is None:
            account.dispatched_mono_s = now
        account.endpoint, account.pool = endpoint.endpoint_id, endpoint.plan.name
        account.engine = endpoint.plan.engine
        asks_usage = endpoint.driver.dialect.supports_stream_usage
        if request.rewrites is None and endpoint.salter is None:
            body = request.body_for(endpoint.plan.served_model, asks_usage=asks_usage)
        else:
            body = self._rewritten_body(endpoint, asks_usage=asks_usage)
        heads = endpoint.heads
        head = b"POST %b%b HTTP/1.1\r\n%bcontent-type: application/json\r\n%b-%d%b\r\ncontent-length: %d\r\n\r\n" % (
            heads.prefix,
            request.path,
            heads.lines,
            self.extra_lines,
            account.attempts,
            b"b" if fresh else b"",
            len(body),
        )
        self.endpoint = endpoint
        endpoint.in_flight += 1
        endpoint.requests += 1
        self.phase = SENT
        self.attempt_mono_s = now
        self.sending = endpoint.connections.send(head, body, self, fresh=fresh)

    def _rewritten_body(self, endpoint: Endpoint, *, asks_usage: bool) -> bytes:
        pool, caller = endpoint.plan, self.account.caller
        salt = endpoint.salter(caller.tenant) if endpoint.salter is not None and caller is not None else None
        rewrite = self.request.rewrites.get(pool.name) if self.request.rewrites is not None else None
        return self.request.rewritten_body(pool.served_model, asks_usage=asks_usage, rewrite=rewrite, salt=salt)

    def _leave_endpoint(self) -> None:
        endpoint, self.endpoint = self.endpoint, None
        if endpoint is not None:
            endpoint.in_flight -= 1

    def _cancel_attempt(self) -> None:
        sending, self.sending = self.sending, None
        if sending is not None:
            sending.cancel()
            if self.endpoint is not None:
                self.settings.meters.count_cancel(self.endpoint.endpoint_id)
        self._leave_endpoint()

    # --- the engine's side (AnswerReader)

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self.last_block_mono_s = monotonic()
        self.body = []
        self.body_bytes = 0
        if not 200 <= status < 300:
            self.phase = ERROR
        elif self.request.is_stream and headers.get(b"content-type", b"").startswith(b"text/event-stream"):
            self.phase = STREAM
            self.watch = watch_for(self.request)
            self.cutter = EventCutter(self.settings.event_bytes)
        else:
            self.phase = WHOLE

    def answer_bytes(self, data: bytes) -> None:
        self.last_block_mono_s = now = monotonic()
        endpoint, phase = self.endpoint, self.phase
        if endpoint is not None:
            endpoint.last_byte_mono_s = now
        if phase is STREAM:
            self._stream_bytes(data, now)
        elif phase is not TAIL:
            self.body.append(data)
            self.body_bytes += len(data)
            if self.body_bytes > self.settings.response_bytes:
                self._cancel_and_fail(
                    ErrorCode.STREAM_BROKEN, f"answer larger than {self.settings.response_bytes} bytes"
                )

    def answer_complete(self) -> None:
        self.sending = None
        if self.phase is TAIL:
            self.phase = ENDED
        elif self.phase is STREAM:
            self._stream_closed()
        elif self.phase is WHOLE:
            self._whole_complete()
        elif self.phase is ERROR:
            self._refused(self.status, b"".join(self.body))

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self.sending = None
        endpoint = self.endpoint
        if self.phase is TAIL or endpoint is None:
            self.phase = ENDED
        elif reason is LossReason.STALE:
            self._leave_endpoint()
            self._send(endpoint, fresh=True)
        else:
            is_refused = reason is LossReason.CONNECT
            code = ErrorCode.CONNECT_FAILED if is_refused else ErrorCode.STREAM_BROKEN
            self._attempt_failed(code, detail, is_refused=is_refused)

    def _whole_complete(self) -> None:
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        envelope = read_envelope(body)
        if envelope is None:
            self._attempt_failed(ErrorCode.STREAM_BROKEN, "the answer is not JSON")
            return
        failure = envelope.failure
        if failure is not None:
            self._refused(500, failure)
            return
        self.account.usage = envelope.counted_usage  # a whole answer shows no first token: TTFT is not measured
        if self.request.rewrites is not None:
            body = self._without_echo(body)
        self._succeeded()
        if self.exchange.is_streaming:  # a heartbeat has promised a stream, the engine answered whole
            self.exchange.send(b"data: " + body + b"\n\ndata: [DONE]\n\n")
            self.exchange.end_stream()
        else:
            self.exchange.respond(200, self.reply_lines + b"content-type: application/json\r\n", body)
        self.phase = ENDED
        self.ending.delivered(200, envelope.id)

    def _without_echo(self, body: bytes) -> bytes:
        """The answer without the beginning that the caller sent and the engine repeats."""
        rewrite = (self.request.rewrites or {}).get(self.account.pool or "")
        return body if rewrite is None or rewrite.echo is None else without_echo(body, rewrite.echo)

    def _refused(self, status: int, body: bytes) -> None:
        endpoint = self.endpoint
        if endpoint is None:
            return
        error = endpoint.driver.translate_error(status, body)
        if RequestError(error.code, "").spec.may_fail_over:
            self._attempt_failed(error.code, f"status {status}", engine_error=error)
            return
        endpoint.request_succeeded()  # it did its work: the request is at fault
        self.account.detail = f"{endpoint.endpoint_id}: status {status}"
        self._leave_endpoint()
        self._fail(RequestError(error.code, error.message, param=error.param, figures=error.figures))

    # --- streams

    def _stream_bytes(self, data: bytes, now: float) -> None:
        watch, cutter, exchange = self.watch, self.cutter, self.exchange
        if watch is None or cutter is None:
            return
        if cutter.rest or not data.endswith(EVENT_ENDS):  # mostly whole events arrive
            try:
                data = cutter.feed(data)
            except EventTooLargeError:
                self._cancel_and_fail(ErrorCode.STREAM_BROKEN, f"event larger than {self.settings.event_bytes} bytes")
                return
            if not data:
                return
        before = watch.output_events
        passed = watch.feed(data)
        events = watch.output_events - before
        if events == 1 and before:
            self.meters.itl.observe(now - self.last_output_mono_s)
            self.last_output_mono_s = now
        elif events:
            self._note_output(events, is_first=before == 0, now=now)
        if passed:
            if not exchange.is_streaming:
                exchange.begin_stream(self.reply_lines + STREAM_HEAD)
            self.is_content_sent = True
            self.last_sent_mono_s = now
            exchange.send(passed)
        if watch.error is not None:
            self._engine_error(watch.error)
        elif watch.is_done:
            self._stream_done(watch)

    def _note_output(self, events: int, *, is_first: bool, now: float) -> None:
        if is_first:
            if self.account.first_output_mono_s is None:
                self.account.first_output_mono_s = now
        else:
            self.meters.itl.observe(now - self.last_output_mono_s)
        if events > 1:
            self.meters.itl.observe(0.0, events - 1)
        self.last_output_mono_s = now

    def _stream_done(self, watch: StreamWatch) -> None:
        self.phase = TAIL if self.sending is not None else ENDED
        self._note_usage()
        self._succeeded()
        self.exchange.end_stream()
        self.ending.delivered(200, watch.answer_id)

    def _stream_closed(self) -> None:
        """The engine's message ended before the end marker was seen. A marker without its blank line still counts."""
        if self.cutter is not None and self.cutter.rest.strip() == b"data: [DONE]":
            self._stream_bytes(b"\n\n", monotonic())
        else:
            self._attempt_failed(ErrorCode.STREAM_BROKEN, "the stream ended without its end marker")

    def _engine_error(self, payload: bytes) -> None:
        """The engine said in its stream that it failed; what it sends after that (even `[DONE]`) is not success."""
        endpoint = self.endpoint
        if endpoint is None:
            return
        error = endpoint.driver.translate_error(500, payload)
        if RequestError(error.code, "").spec.may_fail_over:
            self._cancel_and_fail(ErrorCode.STREAM_BROKEN, "error event", engine_error=error)
            return
        self.account.detail = f"{endpoint.endpoint_id}: error event"
        self._note_usage()
        self._cancel_attempt()
        self._fail(RequestError(error.code, error.message, param=error.param, figures=error.figures))

    def _note_usage(self) -> None:
        watch = self.watch
        if watch is not None:
            self.account.output_events += watch.output_events
            if watch.usage is not None:
                self.account.usage = watch.usage

    # --- ends

    def _succeeded(self) -> None:
        endpoint, self.endpoint = self.endpoint, None
        if endpoint is not None:
            endpoint.request_succeeded()
            endpoint.in_flight -= 1

    def _cancel_and_fail(self, code: ErrorCode, detail: str, *, engine_error: EngineError | None = None) -> None:
        sending, self.sending = self.sending, None
        if sending is not None:
            sending.cancel()
        self._attempt_failed(code, detail, engine_error=engine_error)

    def _attempt_failed(
        self, code: ErrorCode, detail: str, *, is_refused: bool = False, engine_error: EngineError | None = None
    ) -> None:
        """An attempt failed by the engine's fault: try again or end, as the core decides."""
        settings, endpoint = self.settings, self.endpoint
        if endpoint is None:
            return
        now = monotonic()
        self._note_usage()
        self._leave_endpoint()
        # One request blames an endpoint once, however often it tries there: a poisonous request ejects nobody.
        is_blamed = is_refused or self.tried.count(endpoint) == 1
        if engine_error is not None and engine_error.is_leaving:
            is_out = endpoint.engine_is_leaving(engine_error.message, now)
        else:
            is_out = is_blamed and endpoint.request_failed(detail, now, is_refused=is_refused)
        if is_out:
            settings.budget.add_reserve(endpoint.in_flight + 1)
        self.account.detail = f"{endpoint.endpoint_id}: {detail}"
        event = AttemptFailed(
            code=code,
            attempts=self.account.attempts,
            is_content_sent=self.is_content_sent,
            has_other_endpoint=settings.candidates.has_other(self.request, self.tried),
        )
        decision = decide(event, settings.retry, settings.budget, now_mono_s=now, jitter=random())  # noqa: S311
        settings.meters.retry_budget_refusals += decision.is_budget_used_up
        self._follow(decision, code, engine_error)

    def _follow(self, decision: Decision, code: ErrorCode, engine_error: EngineError | None) -> None:
        if decision.step is NextStep.TRY_ELSEWHERE:
            self.meters.failovers[code.value] = self.meters.failovers.get(code.value, 0) + 1
            self._start_over()
            self._try_next()
        elif decision.step is NextStep.TRY_AGAIN_LATER:
            self.meters.retries += 1
            self._start_over()
            self.pause = self.settings.loop.call_later(decision.wait_s, self._try_again)
        else:
            text = FAILURE_TEXT.get(code) or f"the engine refused: {engine_error.message if engine_error else code}"
            retry_after_s = engine_error.retry_after_s if engine_error else None
            message = f"{text} ({self.account.attempts} attempts); retry, or ask the operator"
            self._fail(RequestError(code, message, retry_after_s=retry_after_s))

    def _start_over(self) -> None:
        self.phase = PAUSE
        self.watch = self.cutter = None
        self.account.output_events = 0

    def _fail(self, error: RequestError) -> None:
        """No whole answer: in-band where the head is out; otherwise the pipeline answers."""
        if self.phase is ENDED:
            return
        self.phase = ENDED
        exchange = self.exchange
        if exchange.is_streaming:
            exchange.send(error_event(error, self.request.dialect))
            exchange.end_stream()
        self.ending.failed(error)

    # --- the caller's side (AnswerSource)

    def caller_left(self) -> None:
        if self.phase is ENDED or self.phase is TAIL:
            return
        self.end(RequestError(ErrorCode.CALLER_DISCONNECTED, "the caller closed its connection"))

    def caller_is_slow(self) -> None:
        self.is_paused = True
        if self.sending is not None:
            self.sending.pause()

    def caller_caught_up(self) -> None:
        self.is_paused = False
        self.last_block_mono_s = monotonic()
        if self.sending is not None:
            self.sending.resume()

    def end(self, error: RequestError) -> None:
        """End from outside: caller gone, deadline passed, gateway draining. The engine is told at once."""
        if self.pause is not None:
            self.pause.cancel()
        self._note_usage()
        self._cancel_attempt()
        self._fail(error)

    def crashed(self, bug: Exception) -> None:
        """A bug of ours, whoever called: no engine is blamed, and the request still ends, once."""
        error = self.ending.report(bug)
        if self.phase is ENDED:
            self.ending.failed(error)  # the bug may have come between the end and its settlement
        else:
            self.end(error)

    # --- time

    def sweep(self, now: float) -> None:
        """Enforce time-outs and send heartbeats; called every SWEEP_INTERVAL_S."""
        if self.phase is TAIL:
            if now - self.last_sent_mono_s > TAIL_S:
                self._cancel_attempt()
                self.phase = ENDED
            return
        if self.deadline_mono_s is not None and now > self.deadline_mono_s:
            self.end(RequestError(ErrorCode.DEADLINE_EXCEEDED, "the deadline of x-request-timeout passed"))
            return
        if self.endpoint is not None:
            self._check_silence(self.endpoint, now)
        heartbeat_s = self.settings.heartbeat_s
        if heartbeat_s is not None and self.request.is_stream and now - self.last_sent_mono_s > heartbeat_s:
            self._send_heartbeat(now)

    def _check_silence(self, endpoint: Endpoint, now: float) -> None:
        plan = endpoint.plan
        if self.phase is SENT:
            bound_s = plan.first_token_timeout_s if self.request.is_stream else plan.answer_timeout_s
            if now - self.attempt_mono_s > bound_s:
                self._cancel_and_fail(ErrorCode.FIRST_TOKEN_TIMEOUT, f"no answer within {bound_s:g} s")
        elif not self.is_paused:
            bound_s = min(plan.stall_timeout_s, DESERTED_S) if endpoint.nobody_listens else plan.stall_timeout_s
            if now - self.last_block_mono_s > bound_s:
                self._cancel_and_fail(ErrorCode.STREAM_STALLED, f"silent for {bound_s:g} s within its answer")

    def _send_heartbeat(self, now: float) -> None:
        if self.phase is ENDED or self.is_paused:
            return
        if not self.exchange.is_streaming:
            self.exchange.begin_stream(self.reply_lines + STREAM_HEAD)
        self.last_sent_mono_s = now
        self.exchange.send(HEARTBEAT)

    def __repr__(self) -> str:
        where = self.endpoint.endpoint_id if self.endpoint else "nowhere"
        return f"Delivery({self.phase.name} at {where}, attempts={self.account.attempts})"
