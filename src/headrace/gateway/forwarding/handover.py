"""A request whose prompt one engine computes and another answers: what its playbook says is done, with sockets.

The shell of `gateway/handover/core/`: it turns answers into events and actions into requests, and decides nothing.
Built as `hedge.py`: the delivery gets decode's answer from its first token on. Counterpart: docs/disaggregation.md.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.engines.handover import RoomWords
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.endpoints.seat import Seat
from headrace.gateway.forwarding.attempt import Attempt
from headrace.gateway.forwarding.attempt_request import attempt_body, leg_head
from headrace.gateway.forwarding.core.handover_codes import BLAMED, CODES
from headrace.gateway.forwarding.handed_over import HandedOver, answer_early, fall_back
from headrace.gateway.forwarding.handover_clock import HandoverClock
from headrace.gateway.forwarding.legs import Farewell, LegCall, remove_file, weigh_file
from headrace.gateway.forwarding.phase import SENT
from headrace.gateway.forwarding.streams.watch import plausible
from headrace.gateway.forwarding.whole_answer import read_envelope
from headrace.gateway.handover.core.events import (
    Action,
    CallerLeft,
    CancelLeg,
    ClaimDecode,
    DecodeClaimed,
    DecodeUnavailable,
    End,
    Event,
    FileWeighed,
    FirstTokenArrived,
    FreeHeld,
    FreeSlot,
    HandoverEnd,
    Leg,
    LegAnswered,
    LegLost,
    LegOverdue,
    RemoveFile,
    SendLeg,
    Side,
    WeighFile,
)
from headrace.gateway.handover.core.playbook import Expected, Playbook
from headrace.gateway.handover.playbooks import make_playbook
from headrace.gateway.handover.report import HandoverReport
from headrace.gateway.http.engine_connection import AnswerReader

SLOT_PAUSE_S = 0.02
"""Between two looks for a slot of decode. Chosen."""
LOOK_S = 0.25
"""Between two looks at whether the engines of what runs are still there. As the gateway's sweep."""


def hand_over(delivery: HandedOver, endpoint: Endpoint, seat: Seat) -> bool:
    """Let another engine compute the prompt of a request that is for `endpoint`, where that is worth it or the only
    way. False: it goes there whole.
    """
    if seat.serves_whole and (delivery.is_split or delivery.resumption is not None):
        return False
    candidates, request = delivery.settings.candidates, delivery.request
    try:
        pair = candidates.split(request, endpoint, delivery.tried)
        handover = None if pair is None else make_handover(delivery, pair)
        if handover is None and not seat.serves_whole:
            message = f"no prefill engine of model {request.requested_model!r} has room; retry in a moment"
            raise RequestError(ErrorCode.DECODE_UNAVAILABLE, message)
    except RequestError as error:
        claim, delivery.first_claim = delivery.first_claim, None
        if claim is not None:
            claim.free()
        other = candidates.choose_whole(request, (*delivery.tried, endpoint))
        if other is None:
            delivery.fail(error)
        else:
            delivery.attempt_at(other)
        return True
    if handover is None:
        return False
    delivery.handover, delivery.is_split = handover, True
    handover.start()
    return True


def make_handover(delivery: HandedOver, pair: ChosenPair) -> "Handover | None":
    """Return the hand-over between a pair, to be started; None: prefill has no slot left."""
    seat, decode_seat = pair.prefill.seat, pair.decode.seat
    assert seat is not None
    assert decode_seat is not None
    assert seat.words is not None
    is_unseen, unseen_s = not delivery.request.is_stream, pair.decode.plan.answer_timeout_s
    if pair.answer_s is not None:
        unseen_s = min(unseen_s, pair.answer_s)
    playbook = make_playbook(
        seat.words,
        Expected(
            prefill_s=pair.prefill_s,
            transfer_s=pair.transfer_s,
            # A whole answer shows no first token: its end is what has a bound, and `LOOK_S` beside it.
            first_token_s=pair.decode_s + (unseen_s if is_unseen else 0.0),
            bound_s=pair.bound_s,
        ),
        api=delivery.request.dialect,
        spent=pair.spent,
        meeting_at=(seat.meeting_host, seat.meeting_port),
        claim_slot=lambda: None if seat.slots is None else seat.slots.try_claim(),
    )
    return None if playbook is None else Handover(delivery, pair, playbook, seat, decode_seat)


@dataclass(slots=True, eq=False)
class Handover:
    """One hand-over. Implements `LegOwner`, and `Holding` for decode's attempt. Concurrency: event loop only."""

    delivery: HandedOver
    pair: ChosenPair
    playbook: Playbook
    seat: Seat
    """Prefill's. Both as they were at the start: a new plan may take an endpoint's role away."""
    decode_seat: Seat
    prefill: Attempt | None = None
    """Until it has answered or failed."""
    decode: Attempt | None = None
    """Until its first token, or its failure."""
    clock: HandoverClock = field(default_factory=HandoverClock)
    _computed: TokenUsage | None = None
    """What prefill says that it computed."""
    _legs: dict[Leg, LegCall] = field(default_factory=dict[Leg, LegCall])
    _events: deque[Event] = field(default_factory=deque[Event])
    _is_acting: bool = False
    _refused: set[Side] = field(default_factory=set[Side])
    _pause: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None

    @property
    def request(self) -> InferenceRequest:
        return self.delivery.request

    @property
    def reader(self) -> AnswerReader:
        return self.delivery

    @property
    def longest_answer_bytes(self) -> int:
        return self.delivery.settings.response_bytes

    @property
    def longest_event_bytes(self) -> int:
        return self.delivery.settings.event_bytes

    @property
    def file_name(self) -> str | None:
        """The file of the shared folder that is in use."""
        return self.playbook.file_name

    def start(self) -> None:
        """Claim both places and send what comes first. Admission's claim goes on as decode's, or is given back."""
        delivery, pair, now = self.delivery, self.pair, monotonic()
        account, request, candidates = delivery.account, delivery.request, delivery.settings.candidates
        account.attempts += 1
        if account.dispatched_mono_s is None:
            account.dispatched_mono_s = now
        account.endpoint, account.pool, account.engine = pair.decode.names
        claim, delivery.first_claim = delivery.first_claim, None
        if claim is not None and claim.place is not pair.decode:
            claim.free()
            claim = None
        if claim is None:
            claim = Claim(pair.decode, request.estimated_input_tokens)
        claim.first_token()  # nothing is to be computed there: it holds the prompt, once that has come
        usable, arriving = pair.decode.is_usable, candidates.arriving(request, pair.decode)
        self.decode = Attempt(pair.decode, claim, arriving, now, usable, self)
        computing = candidates.placed(request, pair.prefill)
        claim = Claim(pair.prefill, request.estimated_input_tokens)
        self.prefill = Attempt(pair.prefill, claim, computing, now, pair.prefill.is_usable)
        pair.prefill.requests += 1
        pair.decode.requests += 1
        delivery.phase = SENT
        self._look_later(Leg.PREFILL)
        self._act(self.playbook.start(now))
        self._go_on()

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.told(CallerLeft())

    def counted(self, usage: TokenUsage) -> TokenUsage:
        """Decode's usage as it is charged: what was cached is what prefill had, not what it handed over."""
        computed = self._computed
        cached_tokens = None if computed is None else computed.cached_input_tokens
        return TokenUsage(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_input_tokens=cached_tokens
        )

    # --- what happens (LegOwner, Holding)

    def told(self, event: Event) -> None:
        """Something happened: what follows is done now, or after what is being done."""
        self._events.append(event)
        if not self._is_acting:
            self._go_on()

    def _go_on(self) -> None:
        while self._events:
            following = self._events.popleft()
            self.clock.note(following, monotonic())
            if isinstance(following, LegAnswered) and following.leg is Leg.PREFILL:
                self._prefill_answered(following.body)
            self._act(self.playbook.on(following, monotonic()))

    def was_refused(self, leg: Leg, detail: str) -> None:
        self._refused.add(leg.side)

    def decode_speaks(self, call: LegCall) -> None:
        attempt, self.decode = self.decode, None
        if attempt is None:
            return
        now = monotonic()
        call.is_handed = True
        call.stop_clock()
        self._stop_timers()
        self.told(FirstTokenArrived())
        self._prefill_answered(b"")  # of legs that were sent at once: decode has all of it by now
        if attempt.placement is not None:
            attempt.placement.first_token(now)
        self.delivery.take(attempt, call.sending)
        self.delivery.answer_begun(call.status, call.headers)
        self.delivery.answer_bytes(call.body)

    def over(self, *, is_answered: bool) -> None:
        """Decode's attempt has ended: with the whole answer, or by whatever the delivery says of it."""
        self.told(LegAnswered(Leg.DECODE) if is_answered else LegLost(Leg.DECODE))

    # --- what is done

    def _act(self, actions: Sequence[Action]) -> None:
        self._is_acting = True
        try:
            for action in actions:
                self._do(action)
        finally:
            self._is_acting = False

    def _do(self, action: Action) -> None:
        match action:
            case SendLeg():
                self._send(action)
            case CancelLeg():
                self._cancel(action.leg)
            case ClaimDecode():
                self._claim_decode(monotonic() + action.within_s)
            case WeighFile():
                self._weigh(action)
            case FreeHeld():
                self._free_held(action)
            case FreeSlot():
                self._free_slot(action)
            case RemoveFile():
                self._remove(action.name)
            case End():
                self._ended(action)

    def _send(self, send: SendLeg) -> None:
        delivery, leg, request = self.delivery, send.leg, send.request
        endpoint = self.pair.prefill if leg.side is Side.PREFILL else self.pair.decode
        if request.path is not None:
            body = request.body(b"")
        elif delivery.resumption is not None:
            body = request.body(delivery.resumption.body)
        else:
            body = request.body(attempt_body(delivery.request, endpoint, delivery.account.caller))
        name = b"%d%b" % (delivery.account.attempts, leg.value[:1].encode())
        head = leg_head(delivery.request.path, endpoint, delivery.extra_lines, name, request, len(body))
        keeps_body = not (leg is Leg.PREFILL and isinstance(self.seat.words, RoomWords))
        call = self._legs[leg] = LegCall(self, leg, endpoint, keeps_body)
        self.clock.sent(leg, monotonic())
        loop = delivery.settings.loop
        call.timer = loop.call_later(send.within_s, self._guarded, self._overdue, leg)
        call.send(head, body)

    def _guarded(self, step: Callable[[Leg], None], leg: Leg) -> None:
        """Run what a timer has started: a bug of ours ends the request, not the loop."""
        try:
            step(leg)
        except Exception as bug:  # noqa: BLE001 (boundary of the timer)
            self.delivery.crashed(bug)

    def _overdue(self, leg: Leg) -> None:
        self.told(LegOverdue(leg))

    def _look_later(self, leg: Leg) -> None:
        self._look = self.delivery.settings.loop.call_later(LOOK_S, self._guarded, self._look_at_engines, leg)

    def _look_at_engines(self, leg: Leg) -> None:
        """The first prompts of a pool and whole answers may take minutes, and show nothing until they are there: probes
        tell whether anybody works."""
        for running in self.playbook.running:
            call = self._legs.get(running)
            if call is not None and call.endpoint.is_deserted(can_move=True):
                self.told(LegOverdue(running))
                break
        if self.playbook.end is None:
            self._look_later(leg)

    def _cancel(self, leg: Leg) -> None:
        call = self._legs.pop(leg, None)
        if call is None or call.is_handed:  # the delivery has it
            return
        call.cancel()
        self.delivery.settings.meters.count_cancel(call.endpoint.endpoint_id)

    def _claim_decode(self, until_mono_s: float) -> None:
        """Its place is claimed since the start; where engines have slots, one of them must be idle."""
        self._pause = None
        endpoint, slots = self.pair.decode, self.decode_seat.slots
        if not endpoint.is_usable or endpoint.seat is None:
            self.told(DecodeUnavailable())
        elif slots is None:
            self.told(DecodeClaimed())
        elif (slot := slots.try_claim()) is not None:
            self.told(DecodeClaimed(slot))
        elif monotonic() >= until_mono_s:
            self.told(DecodeUnavailable())
        else:
            look = partial(self._look_for_slot, until_mono_s)
            self._pause = self.delivery.settings.loop.call_later(SLOT_PAUSE_S, self._guarded, look, Leg.RESTORE)

    def _look_for_slot(self, until_mono_s: float, _leg: Leg) -> None:
        if self.playbook.end is None:
            self._claim_decode(until_mono_s)

    def _weigh(self, weigh: WeighFile) -> None:
        folder, loop = self.seat.folder, self.delivery.settings.loop
        if folder is None:
            self.told(FileWeighed(None))
        else:
            weigh_file(folder / weigh.name, loop, weigh.within_s, self._weighed)

    def _weighed(self, size_bytes: int | None) -> None:
        try:
            self.told(FileWeighed(size_bytes))
        except Exception as bug:  # noqa: BLE001 (boundary of the look)
            self.delivery.crashed(bug)

    def _free_held(self, freed: FreeHeld) -> None:
        endpoint = self.pair.prefill if freed.side is Side.PREFILL else self.pair.decode
        name, then = freed.then_removes, None
        if name is not None:
            then = partial(self._remove, name)
        Farewell(endpoint, freed.request, self.delivery.settings.loop, then)

    def _free_slot(self, freed: FreeSlot) -> None:
        slots = (self.seat if freed.side is Side.PREFILL else self.decode_seat).slots
        assert slots is not None
        slots.free(freed.slot)

    def _remove(self, name: str) -> None:
        if self.seat.folder is not None:
            remove_file(self.seat.folder / name, self.delivery.settings.loop)

    def _stop_timers(self) -> None:
        for timer in (self._pause, self._look):
            if timer is not None:
                timer.cancel()
        self._pause = self._look = None

    # --- ends

    def _prefill_answered(self, body: bytes) -> None:
        """The prompt is computed: routing learns how long that took, and what of it was cached."""
        attempt, self.prefill = self.prefill, None
        if attempt is None:
            return
        envelope = read_envelope(body) if body else None
        usage = envelope.usage.counted() if envelope is not None and envelope.usage is not None else UNKNOWN_USAGE
        self._computed = plausible(
            TokenUsage(
                input_tokens=usage.input_tokens, output_tokens=None, cached_input_tokens=usage.cached_input_tokens
            )
        )
        attempt.first_token(monotonic())
        attempt.answered(self._computed)

    def _ended(self, end: End) -> None:
        self._stop_timers()
        for call in self._legs.values():
            call.stop_clock()
        detail = self._settle(end)
        clock = self.clock
        self.pair.report(
            self.pair,
            HandoverReport(
                how=end.how,
                failure=end.failure,
                prefill_s=clock.prefill_s,
                transfer_s=clock.transfer_s(self.pair.decode_s),
                decode_wait_s=clock.decode_wait_s(self.pair.decode_s),
            ),
        )
        if end.how is HandoverEnd.FELL_BACK and end.failure is not None:
            sides = {Side.PREFILL: self.pair.prefill, Side.DECODE: self.pair.decode, None: None}
            fall_back(self.delivery, CODES[end.failure], sides[end.at_fault], detail)

    def _settle(self, end: End) -> str:
        """Give up what both attempts hold, and blame whom there is to blame; returns what the operator is told."""
        now, why = monotonic(), f"hand-over {end.how}: {end.failure}" if end.failure else f"hand-over {end.how}"
        prefill, self.prefill = self.prefill, None
        decode, self.decode = self.decode, None
        pair = self.pair
        if end.how is HandoverEnd.PASSED_ON and end.leg is not None:
            side, passed = end.leg.side, prefill if end.leg is Leg.PREFILL else decode
            prefill, decode = (None, decode) if side is Side.PREFILL else (prefill, None)
            if passed is not None:
                self._pass_on(passed, end.leg)
        elif end.how is HandoverEnd.COMPLETED and end.leg is Leg.PREFILL and decode is not None:
            answer_early(self.delivery, decode, self._legs[Leg.PREFILL].body)
            decode = None
        for side, attempt in ((Side.PREFILL, prefill), (Side.DECODE, decode)):
            if attempt is None:
                continue
            if side is end.at_fault and end.failure in BLAMED:
                is_refused = side in self._refused
                is_blamed = is_refused or attempt.endpoint not in self.delivery.tried  # once by one request
                attempt.failed(why, now, (), is_blamed=is_blamed, is_refused=is_refused, engine_error=None)
            elif end.how in (HandoverEnd.COMPLETED, HandoverEnd.BROKEN) and side is Side.PREFILL:
                attempt.answered(UNKNOWN_USAGE)  # decode has its KV: it did its work
            else:
                attempt.leave()
        return f"{pair.prefill.endpoint_id} to {pair.decode.endpoint_id}: {why}"

    def _pass_on(self, attempt: Attempt, leg: Leg) -> None:
        """An engine finds the request itself wrong: the caller is told so, in its words."""
        call = self._legs[leg]
        self.delivery.take(attempt, None)
        self.delivery.answer_begun(call.status, call.headers)
        self.delivery.answer_bytes(call.body)
        self.delivery.answer_complete()
