"""One request on its way: attempts at engines until one answers, its bytes back to the caller, and one end.

The shell of forwarding: policy is in `core/failover.py`, knowledge of streams in `streams/`. A callback machine rather
than a task, since a task with four awaits costs 6 microseconds (docs/decisions/0001).
"""

import asyncio
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
from headrace.gateway.forwarding.whole_answer import read_envelope
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import LossReason
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.sse import EventCutter, EventTooLargeError
from headrace.gateway.http.wire import STREAM_HEAD

HEARTBEAT = b": heartbeat\n\n"
"""A comment: clients skip it. Source: HTML standard, section 9.2.6."""
TAIL_S = 5.0
"""An engine that has sent the end marker gets so long to end its HTTP message before it is cut. Chosen."""


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


class Delivery:
    """Implements `AnswerReader` for the engine and `AnswerSource` for the caller. Concurrency: event loop only."""

    __slots__ = (
        "_account",
        "_attempt_mono_s",
        "_body",
        "_body_bytes",
        "_cutter",
        "_deadline_mono_s",
        "_ending",
        "_endpoint",
        "_exchange",
        "_extra_lines",
        "_is_content_sent",
        "_is_paused",
        "_last_block_mono_s",
        "_last_output_mono_s",
        "_last_sent_mono_s",
        "_meters",
        "_pause",
        "_phase",
        "_reply_lines",
        "_request",
        "_sending",
        "_settings",
        "_status",
        "_tried",
        "_watch",
    )

    def __init__(
        self,
        request: InferenceRequest,
        exchange: Exchange,
        account: DeliveryAccount,
        ending: Ending,
        settings: ForwardingSettings,
        meters: Meters,
        *,
        reply_lines: bytes,
        extra_lines: bytes,
        deadline_mono_s: float | None,
    ) -> None:
        self._request = request
        self._exchange = exchange
        self._account = account
        self._ending = ending
        self._settings = settings
        self._meters = meters
        self._reply_lines = reply_lines
        """Header lines of every answer: request id, trace, CORS."""
        self._extra_lines = extra_lines
        """Header lines of every attempt: request id, trace."""
        self._deadline_mono_s = deadline_mono_s
        self._phase = Phase.PAUSE
        self._tried: tuple[Endpoint, ...] = ()
        self._endpoint: Endpoint | None = None
        self._sending: Sending | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._watch: StreamWatch | None = None
        self._cutter: EventCutter | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._status = 0
        self._is_content_sent = False
        self._is_paused = False
        self._attempt_mono_s = self._last_block_mono_s = self._last_output_mono_s = 0.0
        self._last_sent_mono_s = exchange.received_mono_s

    def start(self) -> None:
        """Make the first attempt; whatever happens then ends in `Ending`, once."""
        self._exchange.source = self
        self._settings.budget.count_request()
        self._try_next()

    @property
    def is_over(self) -> bool:
        """Nothing is left to do or to watch."""
        return self._phase is Phase.ENDED

    # --- attempts

    def _try_next(self) -> None:
        self._pause = None
        try:
            endpoint = self._settings.candidates.choose(self._request, self._tried)
        except RequestError as error:
            self._fail(error)
            return
        self._account.attempts += 1
        self._tried += (endpoint,)
        self._send(endpoint, fresh=False)

    def _send(self, endpoint: Endpoint, *, fresh: bool) -> None:
        request, account = self._request, self._account
        now = monotonic()
        if account.dispatched_mono_s is None:
            account.dispatched_mono_s = now
        account.endpoint, account.pool = endpoint.endpoint_id, endpoint.plan.name
        account.engine = endpoint.plan.engine
        body = request.body_for(endpoint.plan.served_model, asks_usage=endpoint.driver.dialect.supports_stream_usage)
        heads = endpoint.heads
        head = b"POST %b%b HTTP/1.1\r\n%bcontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n" % (
            heads.prefix,
            request.path,
            heads.lines,
            self._extra_lines,
            len(body),
        )
        self._endpoint = endpoint
        endpoint.in_flight += 1
        endpoint.requests += 1
        self._phase = Phase.SENT
        self._attempt_mono_s = now
        self._sending = endpoint.connections.send(head, body, self, fresh=fresh)

    def _leave_endpoint(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.in_flight -= 1

    def _cancel_attempt(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
            if self._endpoint is not None:
                self._settings.meters.count_cancel(self._endpoint.endpoint_id)
        self._leave_endpoint()

    # --- the engine's side (AnswerReader)

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status
        self._last_block_mono_s = monotonic()
        self._body = []
        self._body_bytes = 0
        if not 200 <= status < 300:
            self._phase = Phase.ERROR
        elif self._request.is_stream and headers.get(b"content-type", b"").startswith(b"text/event-stream"):
            self._phase = Phase.STREAM
            self._watch = watch_for(self._request)
            self._cutter = EventCutter(self._settings.event_bytes)
        else:
            self._phase = Phase.WHOLE

    def answer_bytes(self, data: bytes) -> None:
        now = self._last_block_mono_s = monotonic()
        if self._endpoint is not None:
            self._endpoint.last_byte_mono_s = now
        if self._phase is Phase.STREAM:
            self._stream_bytes(data, now)
        elif self._phase is not Phase.TAIL:
            self._body.append(data)
            self._body_bytes += len(data)
            if self._body_bytes > self._settings.response_bytes:
                self._cancel_and_fail(
                    ErrorCode.STREAM_BROKEN, f"answer larger than {self._settings.response_bytes} bytes"
                )

    def answer_complete(self) -> None:
        self._sending = None
        if self._phase is Phase.TAIL:
            self._phase = Phase.ENDED
        elif self._phase is Phase.STREAM:
            self._stream_closed()
        elif self._phase is Phase.WHOLE:
            self._whole_complete()
        elif self._phase is Phase.ERROR:
            self._refused(self._status, b"".join(self._body))

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self._sending = None
        endpoint = self._endpoint
        if self._phase is Phase.TAIL or endpoint is None:
            self._phase = Phase.ENDED
        elif reason is LossReason.STALE:
            self._leave_endpoint()
            self._send(endpoint, fresh=True)
        else:
            is_refused = reason is LossReason.CONNECT
            code = ErrorCode.CONNECT_FAILED if is_refused else ErrorCode.STREAM_BROKEN
            self._attempt_failed(code, detail, is_refused=is_refused)

    def _whole_complete(self) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        envelope = read_envelope(body)
        if envelope is None:
            self._attempt_failed(ErrorCode.STREAM_BROKEN, "the answer is not JSON")
            return
        self._account.usage, answer_id = envelope  # a whole answer shows no first token: TTFT is not measured
        self._succeeded()
        if self._exchange.is_streaming:  # a heartbeat has promised a stream, the engine answered whole
            self._exchange.send(b"data: " + body + b"\n\ndata: [DONE]\n\n")
            self._exchange.end_stream()
        else:
            self._exchange.respond(200, self._reply_lines + b"content-type: application/json\r\n", body)
        self._phase = Phase.ENDED
        self._ending.delivered(200, answer_id)

    def _refused(self, status: int, body: bytes) -> None:
        endpoint = self._endpoint
        if endpoint is None:
            return
        error = endpoint.driver.translate_error(status, body)
        if RequestError(error.code, "").spec.may_fail_over:
            self._attempt_failed(error.code, f"status {status}: {error.message}", engine_error=error)
            return
        endpoint.request_succeeded()  # it did its work: the request is at fault
        self._account.detail = f"{endpoint.endpoint_id}: status {status}"
        self._leave_endpoint()
        self._fail(RequestError(error.code, error.message, param=error.param))

    # --- streams

    def _stream_bytes(self, data: bytes, now: float) -> None:
        watch, cutter = self._watch, self._cutter
        if watch is None or cutter is None:
            return
        try:
            block = cutter.feed(data)
        except EventTooLargeError:
            self._cancel_and_fail(ErrorCode.STREAM_BROKEN, f"event larger than {self._settings.event_bytes} bytes")
            return
        if block:
            self._stream_events(watch, block, now)

    def _stream_events(self, watch: StreamWatch, block: bytes, now: float) -> None:
        before = watch.output_events
        passed = watch.feed(block)
        events = watch.output_events - before
        if events:
            self._note_output(events, is_first=before == 0, now=now)
        exchange = self._exchange
        if passed:
            if not exchange.is_streaming:
                exchange.begin_stream(self._reply_lines + STREAM_HEAD)
            self._is_content_sent = True
            self._last_sent_mono_s = now
            exchange.send(passed)
        if watch.error is not None:
            self._engine_error(watch.error)
        elif watch.is_done:
            self._stream_done(watch)

    def _note_output(self, events: int, *, is_first: bool, now: float) -> None:
        if is_first:
            if self._account.first_output_mono_s is None:
                self._account.first_output_mono_s = now
        else:
            self._meters.itl.observe(now - self._last_output_mono_s)
        if events > 1:
            self._meters.itl.observe(0.0, events - 1)
        self._last_output_mono_s = now

    def _stream_done(self, watch: StreamWatch) -> None:
        self._phase = Phase.TAIL if self._sending is not None else Phase.ENDED
        self._note_usage()
        self._succeeded()
        self._exchange.end_stream()
        self._ending.delivered(200, watch.answer_id)

    def _stream_closed(self) -> None:
        """The engine's message ended before the end marker was seen. A marker without its blank line still counts."""
        watch, cutter = self._watch, self._cutter
        if watch is not None and cutter is not None and cutter.rest.strip() == b"data: [DONE]":
            self._stream_events(watch, cutter.feed(b"\n\n"), monotonic())
        else:
            self._attempt_failed(ErrorCode.STREAM_BROKEN, "the stream ended without its end marker")

    def _engine_error(self, payload: bytes) -> None:
        """The engine said in its stream that it failed; what it sends after that (even `[DONE]`) is not success."""
        endpoint = self._endpoint
        if endpoint is None:
            return
        error = endpoint.driver.translate_error(500, payload)
        if RequestError(error.code, "").spec.may_fail_over:
            self._cancel_and_fail(ErrorCode.STREAM_BROKEN, f"error event: {error.message}", engine_error=error)
            return
        self._account.detail = f"{endpoint.endpoint_id}: error event"
        self._note_usage()
        self._cancel_attempt()
        self._fail(RequestError(error.code, error.message, param=error.param))

    def _note_usage(self) -> None:
        watch = self._watch
        if watch is not None:
            self._account.output_events += watch.output_events
            if watch.usage is not None:
                self._account.usage = watch.usage

    # --- ends

    def _succeeded(self) -> None:
        if self._endpoint is not None:
            self._endpoint.request_succeeded()
        self._leave_endpoint()

    def _cancel_and_fail(self, code: ErrorCode, detail: str, *, engine_error: EngineError | None = None) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
        self._attempt_failed(code, detail, engine_error=engine_error)

    def _attempt_failed(
        self, code: ErrorCode, detail: str, *, is_refused: bool = False, engine_error: EngineError | None = None
    ) -> None:
        """An attempt failed by the engine's fault: try again or end, as the core decides."""
        settings, endpoint = self._settings, self._endpoint
        if endpoint is None:
            return
        now = monotonic()
        self._note_usage()
        self._leave_endpoint()
        # One request blames an endpoint once, however often it tries there: a poisonous request ejects nobody.
        is_blamed = is_refused or self._tried.count(endpoint) == 1
        if is_blamed and endpoint.request_failed(detail, now, is_refused=is_refused):
            settings.budget.add_reserve(endpoint.in_flight + 1)
        self._account.detail = f"{endpoint.endpoint_id}: {detail}"
        event = AttemptFailed(
            code=code,
            attempts=self._account.attempts,
            is_content_sent=self._is_content_sent,
            has_other_endpoint=settings.candidates.has_other(self._request, self._tried),
        )
        decision = decide(event, settings.retry, settings.budget, now_mono_s=now, jitter=random())  # noqa: S311
        settings.meters.retry_budget_refusals += decision.is_budget_used_up
        self._follow(decision, code, engine_error)

    def _follow(self, decision: Decision, code: ErrorCode, engine_error: EngineError | None) -> None:
        if decision.step is NextStep.TRY_ELSEWHERE:
            self._meters.failovers[code.value] = self._meters.failovers.get(code.value, 0) + 1
            self._start_over()
            self._try_next()
        elif decision.step is NextStep.TRY_AGAIN_LATER:
            self._meters.retries += 1
            self._start_over()
            self._pause = self._settings.loop.call_later(decision.wait_s, self._try_next)
        else:
            text = FAILURE_TEXT.get(code) or f"the engine refused: {engine_error.message if engine_error else code}"
            retry_after_s = engine_error.retry_after_s if engine_error else None
            message = f"{text} ({self._account.attempts} attempts); retry, or ask the operator"
            self._fail(RequestError(code, message, retry_after_s=retry_after_s))

    def _start_over(self) -> None:
        self._phase = Phase.PAUSE
        self._watch = self._cutter = None
        self._account.output_events = 0

    def _fail(self, error: RequestError) -> None:
        """No whole answer: in-band where the head is out; otherwise the pipeline answers."""
        if self._phase is Phase.ENDED:
            return
        self._phase = Phase.ENDED
        exchange = self._exchange
        if exchange.is_streaming:
            exchange.send(error_event(error, self._request.dialect))
            exchange.end_stream()
        self._ending.failed(error)

    # --- the caller's side (AnswerSource)

    def caller_left(self) -> None:
        if self._phase is Phase.ENDED or self._phase is Phase.TAIL:
            return
        self.end(RequestError(ErrorCode.CALLER_DISCONNECTED, "the caller closed its connection"))

    def caller_is_slow(self) -> None:
        self._is_paused = True
        if self._sending is not None:
            self._sending.pause()

    def caller_caught_up(self) -> None:
        self._is_paused = False
        self._last_block_mono_s = monotonic()
        if self._sending is not None:
            self._sending.resume()

    def end(self, error: RequestError) -> None:
        """End from outside: caller gone, deadline passed, gateway draining. The engine is told at once."""
        if self._pause is not None:
            self._pause.cancel()
        self._note_usage()
        self._cancel_attempt()
        self._fail(error)

    # --- time

    def sweep(self, now: float) -> None:
        """Enforce time-outs and send heartbeats; called every SWEEP_INTERVAL_S."""
        if self._phase is Phase.TAIL:
            if now - self._last_sent_mono_s > TAIL_S:
                self._cancel_attempt()
                self._phase = Phase.ENDED
            return
        if self._deadline_mono_s is not None and now > self._deadline_mono_s:
            self.end(RequestError(ErrorCode.DEADLINE_EXCEEDED, "the deadline of x-request-timeout passed"))
            return
        if self._endpoint is not None:
            self._check_silence(self._endpoint, now)
        heartbeat_s = self._settings.heartbeat_s
        if heartbeat_s is not None and self._request.is_stream and now - self._last_sent_mono_s > heartbeat_s:
            self._send_heartbeat(now)

    def _check_silence(self, endpoint: Endpoint, now: float) -> None:
        plan = endpoint.plan
        if self._phase is Phase.SENT:
            bound_s = plan.first_token_timeout_s if self._request.is_stream else plan.answer_timeout_s
            if now - self._attempt_mono_s > bound_s:
                self._cancel_and_fail(ErrorCode.FIRST_TOKEN_TIMEOUT, f"no answer within {bound_s:g} s")
        elif not self._is_paused and now - self._last_block_mono_s > plan.stall_timeout_s:
            self._cancel_and_fail(ErrorCode.STREAM_STALLED, f"silent for {plan.stall_timeout_s:g} s within its answer")

    def _send_heartbeat(self, now: float) -> None:
        if self._phase is Phase.ENDED or self._is_paused:
            return
        if not self._exchange.is_streaming:
            self._exchange.begin_stream(self._reply_lines + STREAM_HEAD)
        self._last_sent_mono_s = now
        self._exchange.send(HEARTBEAT)

    def __repr__(self) -> str:
        where = self._endpoint.endpoint_id if self._endpoint else "nowhere"
        return f"Delivery({self._phase.name} at {where}, attempts={self._account.attempts})"
