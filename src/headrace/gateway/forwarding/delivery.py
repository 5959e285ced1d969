"""One request on its way: attempts at engines until one answers, its bytes back to the caller, and one end.

The shell of forwarding: policy is in `core/failover.py`, knowledge of streams in `streams/`. A callback machine rather
than a task, since a task with four awaits costs 6 microseconds (docs/decisions/0001).
"""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.engines.contract import EngineError
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.forwarding.attempt import Attempt
from headrace.gateway.forwarding.attempt_request import attempt_body, attempt_head
from headrace.gateway.forwarding.caller_stream import CallerStream
from headrace.gateway.forwarding.core.bars import ResumeCause
from headrace.gateway.forwarding.elsewhere import go_elsewhere
from headrace.gateway.forwarding.going_on import resume
from headrace.gateway.forwarding.handed_over import Leaving
from headrace.gateway.forwarding.handover import hand_over
from headrace.gateway.forwarding.hedge import Hedge, expect_first_token
from headrace.gateway.forwarding.in_band import error_event
from headrace.gateway.forwarding.model_line import naming_model
from headrace.gateway.forwarding.phase import ENDED, ERROR, PAUSE, SENT, STREAM, TAIL, WHOLE, Phase
from headrace.gateway.forwarding.ports import DeliveryAccount, Ending, ForwardingSettings, Meters
from headrace.gateway.forwarding.resumption import Resumption, begin_stream
from headrace.gateway.forwarding.slots import pin
from headrace.gateway.forwarding.streams.watch import plausible
from headrace.gateway.forwarding.trying_again import attempt_again
from headrace.gateway.forwarding.whole_answer import read_envelope, what_came, without_echo
from headrace.gateway.forwarding.whole_as_stream import whole_as_stream
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import LossReason
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.sse import EventCutter, EventTooLargeError, is_event_stream


@dataclass(slots=True, eq=False)  # with slots, as `Exchange`: its fields are set some twenty times a request
class Delivery:
    """Implements `AnswerReader` for the engine and `AnswerSource` for the caller. Concurrency: event loop only."""

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
    """When the caller was last sent a heartbeat; before that, when its request was complete."""
    phase: Phase = PAUSE
    tried: tuple[Endpoint, ...] = ()
    attempt: Attempt | None = None
    """The one under way, until its answer is whole."""
    first_claim: Claim | None = None
    """Where admission has claimed a place for the first attempt."""
    sending: Sending | None = None
    pause: asyncio.TimerHandle | None = None
    stream: CallerStream | None = None
    """There from the head of a streamed answer on."""
    resumption: Resumption | None = None
    """There from the first break of a stream that the caller has a part of: every later attempt goes on with it."""
    hedge: Hedge | None = None
    """The second attempt that is or may be made, while the first has not spoken."""
    handover: Leaving | None = None
    """Another engine computes its prompt, or has; decode's answer is the attempt under way from its first token on."""
    is_split: bool = False
    move_mono_s: float | None = None
    """When the stream leaves its endpoint, which is being taken away."""
    body: list[bytes] = field(init=False)
    """Of an answer that is no stream; there from its head on."""
    body_bytes: int = 0
    status: int = 0
    is_paused: bool = False
    last_block_mono_s: float = 0.0

    def hold(self) -> None:
        """Watch the caller while the request waits for `start`, which may come or not: it may be ended before."""
        self.exchange.source = self

    def start(self, first: Claim | None = None) -> None:
        """Make the first attempt, at the endpoint that admission has claimed for it, where it has; whatever happens
        then ends in `Ending`, once.
        """
        self.first_claim = first
        self.exchange.source = self
        self.settings.budget.count_request()
        if first is None:
            self.try_next()
            return
        assert isinstance(first.place, Endpoint)
        self.attempt_at(first.place)

    def withdraw(self) -> bool:
        """Take the request back from its engine, to be held again; False where an answer has begun."""
        if self.phase is not SENT or self.stream is not None or self.hedge is not None or self.handover is not None:
            return False
        self.cancel_attempt()
        self.start_over()
        self.tried = ()
        self.account.dispatched_mono_s = None
        return True

    @property
    def claim(self) -> Claim | None:
        """What the attempt under way holds at its endpoint."""
        return None if self.attempt is None else self.attempt.claim

    @property
    def attempt_mono_s(self) -> float:
        """When the attempt under way was sent."""
        return 0.0 if self.attempt is None else self.attempt.begun_mono_s

    @property
    def output_tokens(self) -> int:
        """Output tokens of the attempt under way, so far, as far as its stream shows them."""
        return 0 if self.stream is None else self.stream.watch.output_events

    @property
    def is_over(self) -> bool:
        """Nothing is left to do or to watch."""
        return self.phase is ENDED

    # --- attempts

    def try_next(self) -> None:
        """Make an attempt at whatever endpoint routing chooses."""
        self.pause = None
        try:
            self.attempt_at(self.settings.candidates.choose(self.request, self.tried))
        except RequestError as error:
            self.fail(error)
        except Exception as bug:  # noqa: BLE001 (boundary of the timer)
            self.crashed(bug)

    def attempt_at(self, endpoint: Endpoint, *, fresh: bool = False) -> None:
        """Send the request to `endpoint`; `fresh`: once more, as the connection it was sent on had been closed."""
        request, account, seat = self.request, self.account, endpoint.seat
        if request.choice is not None:
            self.reply_lines = naming_model(self.reply_lines, request.requested_model)
        if seat is not None and not fresh and hand_over(self, endpoint, seat):
            return
        if not fresh:
            account.attempts += 1
            self.tried += (endpoint,)
        now = monotonic()
        if account.dispatched_mono_s is None:
            account.dispatched_mono_s = now
        account.endpoint, account.pool, account.engine = endpoint.names
        resumption = self.resumption
        body = attempt_body(request, endpoint, account.caller) if resumption is None else resumption.body
        holding = None
        if seat is not None and seat.slots is not None:
            body, holding = pin(seat, body)
        name = b"%d%b" % (account.attempts, b"b" if fresh else b"")
        head = attempt_head(request, endpoint, self.extra_lines, name, len(body))
        placement = self.settings.candidates.placed(request, endpoint)
        claim, self.first_claim = self.first_claim, None
        if claim is None:
            had_tokens = 0 if resumption is None else resumption.had.tokens
            claim = Claim(endpoint, request.estimated_input_tokens + had_tokens)
        self.attempt = Attempt(endpoint, claim, placement, now, endpoint.is_usable, holding)
        endpoint.requests += 1
        self.phase = SENT
        self.sending = endpoint.connections.send(head, body, self, fresh=fresh)
        if endpoint.plan.hedge is not None and account.attempts == 1:
            self.hedge = expect_first_token(self, endpoint.plan)

    def cancel_attempt(self) -> None:
        """Close the attempt under way at its engine, which is how the engine learns that nobody waits any more."""
        if self.handover is not None:
            self.handover.leave()
        sending, self.sending = self.sending, None
        attempt, self.attempt = self.attempt, None
        if sending is not None:
            sending.cancel()
            if attempt is not None:
                self.settings.meters.count_cancel(attempt.endpoint.endpoint_id)
        if attempt is not None:
            attempt.leave()
        claim, self.first_claim = self.first_claim, None
        if claim is not None:  # a bug of ours came before it was used
            claim.free()

    # --- the engine's side (AnswerReader)

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self.last_block_mono_s = monotonic()
        self.body, self.body_bytes = [], 0
        if not 200 <= status < 300:
            self.phase = ERROR
        elif self.request.is_stream and is_event_stream(headers):
            self.phase = STREAM
            self._stream_begun()
        else:
            self.phase = WHOLE

    def answer_bytes(self, data: bytes) -> None:
        self.last_block_mono_s = now = monotonic()
        attempt, phase = self.attempt, self.phase
        if attempt is not None:
            attempt.endpoint.last_byte_mono_s = now
        if phase is STREAM:
            stream = self.stream
            if stream is not None:  # inline, since it runs for every chunk of every stream
                try:
                    has_more = stream.feed(data, now)
                except EventTooLargeError:
                    message = f"event larger than {self.settings.event_bytes} bytes"
                    self.cancel_and_fail(ErrorCode.STREAM_BROKEN, message)
                    return
                if attempt is not None and attempt.claim.is_prefilling:
                    self._first_events(stream, attempt, now)
                if has_more:
                    self._stream_over(stream)
        elif phase is not TAIL:
            self.body.append(data)
            self.body_bytes += len(data)
            if self.body_bytes > self.settings.response_bytes:
                self.cancel_and_fail(
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
            self._engine_error(self.status, b"".join(self.body), f"status {self.status}")

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self.sending = None
        attempt = self.attempt
        if self.phase is TAIL or attempt is None:
            self.phase = ENDED
        elif reason is LossReason.STALE:
            self.attempt = None  # left once, whatever comes next
            attempt.leave()
            self.attempt_at(attempt.endpoint, fresh=True)
        else:
            is_refused = reason is LossReason.CONNECT
            code = ErrorCode.CONNECT_FAILED if is_refused else ErrorCode.STREAM_BROKEN
            self._attempt_failed(code, detail, is_refused=is_refused)

    def _whole_complete(self) -> None:
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        envelope = read_envelope(body)
        if envelope is None or self.resumption is not None:
            came = "no stream" if envelope is not None else f"not JSON but {what_came(body)}"
            self._is_no_answer(f"the answer is {came}")
            return
        failure = envelope.failure
        if failure is not None:
            self._engine_error(500, failure, "status 500")
            return
        usage = envelope.usage  # a whole answer shows no first token: TTFT is not measured
        self.account.usage = UNKNOWN_USAGE if usage is None else self._charged(usage.counted())
        rewrite = (self.request.rewrites or {}).get(self.account.pool or "")
        if rewrite is not None and rewrite.echo is not None:
            body = without_echo(body, rewrite.echo)
        self._succeeded()
        if self.exchange.is_streaming:  # a heartbeat has promised a stream, the engine answered whole
            request = self.request
            self.exchange.send(whole_as_stream(body, request.dialect, hides_usage=request.adds_usage))
            self.exchange.end_stream()
        else:
            self.exchange.respond(200, self.reply_lines + b"content-type: application/json\r\n", body)
        self.phase = ENDED
        self.ending.delivered(200, envelope.id)

    def _is_no_answer(self, what: str) -> None:
        """What came is whole, and no answer all the same: the caller is told what it is, too."""
        error = EngineError(code=ErrorCode.STREAM_BROKEN, message=what)
        self.cancel_and_fail(ErrorCode.STREAM_BROKEN, what, engine_error=error)

    # --- streams

    def _stream_begun(self) -> None:
        settings, attempt, resumption = self.settings, self.attempt, self.resumption
        if resumption is not None and self.stream is not None:
            self.stream.go_on(resumption.watch(), self.last_block_mono_s)
            if self.is_paused and self.sending is not None:
                self.sending.pause()
            return
        if attempt is not None:
            watch = begin_stream(self.request, attempt.endpoint, settings.resume)
            cutter = EventCutter(settings.event_bytes)
            self.stream = stream = CallerStream(
                self.exchange, self.account, self.meters, self.reply_lines, watch, cutter
            )
            stream.last_word_mono_s = self.last_block_mono_s

    def _first_events(self, stream: CallerStream, attempt: Attempt, now: float) -> None:
        if self.hedge is not None and stream.has_sent:
            self.hedge.first_spoke(now - attempt.begun_mono_s)
            self.hedge = None
        if stream.watch.output_events:
            attempt.first_token(now)

    def _stream_over(self, stream: CallerStream) -> None:
        if stream.watch.error is not None:
            self._engine_error(500, stream.watch.error, "error event")
            return
        if stream.watch.is_cut_short and self.sending is not None:
            self.sending.cancel()
            self.sending = None
        self.phase = TAIL if self.sending is not None else ENDED
        self.note_usage()
        self._succeeded()
        self.exchange.end_stream()
        self.ending.delivered(200, stream.watch.answer_id)

    def _stream_closed(self) -> None:
        """The engine's message ended before the end marker was seen. A marker without its blank line still counts."""
        if self.stream is not None and self.stream.cutter.rest.strip() == b"data: [DONE]":
            self.answer_bytes(b"\n\n")
        else:
            self._attempt_failed(ErrorCode.STREAM_BROKEN, "the stream ended without its end marker")

    def _engine_error(self, status: int, payload: bytes, detail: str) -> None:
        """The engine said that it failed; what it sends in its stream after that (even `[DONE]`) is not success."""
        if self.attempt is None:
            return
        endpoint = self.attempt.endpoint
        error = endpoint.driver.translate_error(status, payload)
        refusal = RequestError(error.code, error.message, param=error.param, figures=error.figures)
        if refusal.spec.may_fail_over:
            code = error.code if self.stream is None else ErrorCode.STREAM_BROKEN
            self.cancel_and_fail(code, detail, engine_error=error)
            return
        if self.sending is None:
            endpoint.request_succeeded()  # it did its work: the request is at fault
        self.account.detail = f"{endpoint.endpoint_id}: {detail}"
        self.note_usage()
        self.cancel_attempt()
        if not go_elsewhere(self, endpoint, refusal):
            self.fail(refusal)

    def note_usage(self) -> None:
        """Bring the account up to what the caller was sent."""
        if self.stream is not None:
            watch = self.stream.watch
            self.account.output_events = self.stream.output_events
            if watch.usage is not None:
                self.account.usage = self._charged(watch.usage)

    def _charged(self, usage: TokenUsage) -> TokenUsage:
        return plausible(usage if self.handover is None else self.handover.counted(usage))

    # --- ends

    def _succeeded(self) -> None:
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.answered(self.account.usage)

    def cancel_and_fail(self, code: ErrorCode, detail: str, *, engine_error: EngineError | None = None) -> None:
        """The attempt under way is given up by the engine's fault."""
        sending, self.sending = self.sending, None
        if sending is not None:
            sending.cancel()
        self._attempt_failed(code, detail, engine_error=engine_error)

    def _attempt_failed(
        self, code: ErrorCode, detail: str, *, is_refused: bool = False, engine_error: EngineError | None = None
    ) -> None:
        """An attempt failed by the engine's fault: try again or end, as the core decides."""
        settings, attempt = self.settings, self.attempt
        if attempt is None:
            return
        now = monotonic()
        self.note_usage()
        self.attempt, endpoint = None, attempt.endpoint
        budgets = (settings.budget, settings.resume.budget)
        # One request blames an endpoint once, however often it tries there: a poisonous request ejects nobody.
        is_blamed = is_refused or self.tried.count(endpoint) == 1
        attempt.failed(detail, now, budgets, is_blamed=is_blamed, is_refused=is_refused, engine_error=engine_error)
        self.handover = None
        self.account.detail = f"{endpoint.endpoint_id}: {detail}"
        if self.hedge is not None and self.hedge.take_over():
            return
        if self.stream is not None and self.stream.has_sent:
            if is_refused and self.resumption is not None:
                self.resumption.was_refused()
            cause = ResumeCause.STALLED if code is ErrorCode.STREAM_STALLED else ResumeCause.DIED
            resume(self, self.stream, endpoint, cause, now, is_told=engine_error is not None)
            return
        self.try_again(code, now, engine_error)

    def try_again(self, code: ErrorCode, now: float, engine_error: EngineError | None = None) -> None:
        """Nothing came of an attempt, and the caller has nothing yet: what follows is decided in the core."""
        attempt_again(self, code, now, engine_error)

    @property
    def has_spoken(self) -> bool:
        """The commit point is passed: the caller has bytes of an answer."""
        return self.stream is not None and self.stream.has_sent

    def follow(self, attempt: Attempt, sending: Sending | None) -> None:
        """Another attempt, that was made beside it, takes the place of the one under way."""
        self.cancel_attempt()
        self.stream, self.phase = None, SENT
        self.take(attempt, sending)

    # --- handed over (HandedOver)

    def rejoin(self, endpoint: Endpoint, now: float) -> bool:
        """Go on elsewhere than at `endpoint` with a stream that the caller has a part of. False: there is none."""
        stream = self.stream
        if stream is None or not stream.has_sent:
            return False
        resume(self, stream, endpoint, ResumeCause.DIED, now)
        return True

    def take(self, attempt: Attempt, sending: Sending | None) -> None:
        """What comes now is the answer of this attempt."""
        self.attempt, self.sending = attempt, sending
        self.account.endpoint, self.account.pool, self.account.engine = attempt.endpoint.names
        if attempt.endpoint not in self.tried:
            self.tried += (attempt.endpoint,)
        if self.is_paused and sending is not None:
            sending.pause()

    def start_over(self) -> None:
        self.phase, self.stream = PAUSE, None
        self.account.output_events = 0

    def fail(self, error: RequestError) -> None:
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
        self.last_block_mono_s = now = monotonic()
        if self.stream is not None:
            self.stream.last_word_mono_s = now
        if self.sending is not None:
            self.sending.resume()

    def end(self, error: RequestError) -> None:
        """End from outside: caller gone, deadline passed, gateway draining. The engine is told at once."""
        if self.pause is not None:
            self.pause.cancel()
        if self.hedge is not None:
            self.hedge.lose()
        self.note_usage()
        self.cancel_attempt()
        self.fail(error)

    def crashed(self, bug: Exception) -> None:
        """A bug of ours, whoever called: no engine is blamed, and the request still ends, once."""
        error = self.ending.report(bug)
        if self.phase is ENDED:
            self.ending.failed(error)  # the bug may have come between the end and its settlement
        else:
            self.end(error)
