"""Which requests are split now, and between which endpoints: what routing knows of hand-overs, kept from plan to plan.

The shell of `core/`: it reads endpoints, candidates and the clock. Counterpart: `forwarding/handover.py`, which carries
a pair out and reports how it went.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Protocol

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.routing_status import RouteExplanation, SplitView
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.handover.core.events import HandoverEnd
from headrace.gateway.handover.core.tickets import SpentTickets
from headrace.gateway.handover.report import HandoverReport
from headrace.gateway.routing.core.candidate import Candidate
from headrace.gateway.routing.disaggregation.core.link_times import LinkTimes
from headrace.gateway.routing.disaggregation.core.pairing import Half, Pair, choose_pair
from headrace.gateway.routing.disaggregation.core.splittable import find_split_bar
from headrace.gateway.routing.disaggregation.core.splitting import (
    SplitReason,
    SplitRules,
    SplitVerdict,
    SplitWay,
    WholeWay,
    decide_split,
)
from headrace.gateway.routing.disaggregation.fits import Fits
from headrace.gateway.routing.disaggregation.kv_size import KvSizes
from headrace.gateway.routing.placer import Placement, Placer

LEARNED_POINTS = 3
"""First tokens from which on a pool's speed is known well enough to say that one is late."""
UNKNOWN_SPEED_S = 30.0
"""What the first prompts of a pool may take beyond what is guessed. Chosen."""
LEAST_ANSWER_S = 2.0
"""Whole answers are given so long at least: chosen, as the speed of a pool that streams to nobody is a guess."""
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""A pair whose hand-over failed is left alone for so long, doubling each time, where there is any other way. Chosen."""


class HandoverMeters(Protocol):
    """Counts of one model."""

    decisions: dict[str, int]
    """By SplitReason."""
    pairs: dict[str, int]
    """See `fits.FitMeters`."""
    ended: dict[str, int]
    """By HandoverEnd."""
    fallbacks: dict[str, int]
    """By HandoverFailure."""
    tokens: float
    transferred_bytes: float
    """Of models whose KV has a known size."""
    transfer_s: float
    gain_s: float
    gains: int
    """Of all requests of which a gain was predicted; of those that were split for it, the two below."""
    split_gain_s: float
    split_gains: int

    def observe_stage(self, stage: str, seconds: float) -> None:
        """`stage`: prefill_queue, prefill, transfer or decode_queue."""
        ...


@dataclass(slots=True, eq=False)
class Halves:
    """The endpoints of one model that are halves, as the directory has them."""

    prefills: Sequence[Endpoint]
    decodes: Sequence[Endpoint]

    def without(self, tried: tuple[Endpoint, ...]) -> "Halves":
        """Those that were not tried; of a side where all were, all."""
        if not tried:
            return self
        left = ([one for one in side if one not in tried] or side for side in (self.prefills, self.decodes))
        return Halves(*left)

    @property
    def reserve(self) -> Sequence[Endpoint]:
        """They answer whole requests only where nobody else is left."""
        return [one for one in self.prefills if one.seat is not None and one.seat.is_reserve and one.seat.serves_whole]


def sort_halves(endpoints: Iterable[Endpoint]) -> tuple[tuple[Endpoint, ...], Halves | None]:
    """Return the endpoints that requests go to, and the halves among all; None where there are none."""
    found = tuple(endpoints)
    prefills = [one for one in found if one.seat is not None and one.seat.can_prefill]
    decodes = [one for one in found if one.seat is not None and one.seat.can_decode]
    if not prefills and all(one.seat is None or one.seat.serves_whole for one in found):
        return found, None
    takers = tuple(one for one in found if one.seat is None or not one.seat.is_reserve)
    return takers, Halves(prefills, decodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found about splitting one request."""

    verdict: SplitVerdict
    pair: Pair | None = None
    chosen: ChosenPair | None = None


@dataclass(slots=True, eq=False)
class Rest:
    """A pair that failed."""

    until_mono_s: float
    for_s: float


class Handovers:
    """Concurrency: event loop only."""

    def __init__(self, placer: Placer, meters_of: Callable[[str], HandoverMeters]) -> None:
        self._placer = placer
        self._meters_of = meters_of
        self._links: dict[str, LinkTimes] = {}
        """By model."""
        self._rests: dict[tuple[Endpoint, Endpoint], Rest] = {}
        self._sizes = KvSizes()
        self._outages: dict[Endpoint, int] = {}
        self.fits = Fits()
        self.spent = SpentTickets()

    def link(self, model: str) -> LinkTimes:
        return self._links.setdefault(model, LinkTimes())

    def split(
        self, request: InferenceRequest, whole: Endpoint, halves: Halves, tried: tuple[Endpoint, ...] = ()
    ) -> ChosenPair | None:
        """Return the pair for a request that would go to `whole`; None: it goes there. One of `tried` is taken only
        where nobody else can help it.

        Raises: RequestError where `whole` cannot answer alone and nobody can help it.
        """
        seat = whole.seat
        is_forced = seat is not None and not seat.serves_whole
        looked = self.look(request, whole, halves.without(tried))
        if tried and is_forced and not looked.verdict.is_split:
            looked = self.look(request, whole, halves)
        meters = self._meters_of(request.requested_model)
        reason = looked.verdict.reason.value
        meters.decisions[reason] = meters.decisions.get(reason, 0) + 1
        if looked.verdict.gain_s is not None:
            meters.gain_s += looked.verdict.gain_s
            meters.gains += 1
            if looked.verdict.is_split:
                meters.split_gain_s += looked.verdict.gain_s
                meters.split_gains += 1
        if looked.verdict.is_split:
            return looked.chosen
        if is_forced:
            raise self.refusal(request, halves)
        return None

    def look(self, request: InferenceRequest, whole: Endpoint, halves: Halves) -> Looked:
        """Decide without counting: `core/splitting.py` has the cases."""
        plan = next((one.plan.handover for one in halves.prefills if one.plan.handover is not None), None)
        bar = find_split_bar(request.fields, request.dialect)
        is_forced = whole.seat is not None and not whole.seat.serves_whole
        if plan is None or bar is not None or request.pinned_endpoint is not None:
            reason = SplitReason.NO_PAIR if plan is None else SplitReason.CANNOT
            return Looked(verdict=SplitVerdict(is_split=False, reason=reason))
        rules = SplitRules(fewest_tokens=plan.min_tokens, margin_s=plan.min_gain_s)
        if not is_forced and 0 < request.estimated_input_tokens < rules.fewest_tokens:
            return Looked(verdict=SplitVerdict(is_split=False, reason=SplitReason.SHORT))
        way, tokens = self._whole_way(request, whole)
        pair, chosen = self._best_pair(request, whole, halves, tokens)
        found = None
        if pair is not None and chosen is not None:
            found = SplitWay(
                prefill_ttft_s=chosen.prefill_s - self._margin_of(chosen.prefill),
                transfer_s=chosen.transfer_s,
                decode_s=chosen.decode_s,
                rest_s=self._rest_s(chosen.prefill, chosen.decode),
            )
        verdict = decide_split(rules, can_split=True, prompt_tokens=round(tokens), whole=way, split=found)
        if is_forced:
            verdict = SplitVerdict(is_split=chosen is not None, reason=_forced(chosen), gain_s=None)
        if verdict.reason is SplitReason.NO_PAIR and self._find_unfit(request, halves) is not None:
            verdict = replace(verdict, reason=SplitReason.UNFIT)
        return Looked(verdict=verdict, pair=pair, chosen=chosen)

    def explained(
        self, found: RouteExplanation, request: InferenceRequest, whole: Endpoint | None, halves: Halves
    ) -> RouteExplanation:
        """Say beside a choice whether the request would be split, and why not."""
        if whole is None:
            return found
        looked = self.look(request, whole, halves)
        chosen, gain_s = looked.chosen, looked.verdict.gain_s
        view = SplitView(is_split=looked.verdict.is_split, reason=looked.verdict.reason.value, gain_s=gain_s)
        if chosen is not None:
            view = msgspec.structs.replace(
                view,
                prefill=chosen.prefill.endpoint_id,
                decode=chosen.decode.endpoint_id,
                prefill_s=chosen.prefill_s - self._margin_of(chosen.prefill),
                transfer_s=chosen.transfer_s,
                decode_s=chosen.decode_s,
                prefill_version=_version(chosen.prefill),
                decode_version=_version(chosen.decode),
            )
        fit = self.fits.models.get(request.requested_model)
        view = msgspec.structs.replace(view, mismatches=() if fit is None else fit.mismatches)
        return msgspec.structs.replace(found, split=view)

    def arriving(self, request: InferenceRequest, endpoint: Endpoint) -> "ArrivingPlacement | None":
        """A prompt that is computed elsewhere comes to `endpoint`."""
        placement = self._placer.placed(request, endpoint)
        return None if placement is None else ArrivingPlacement(placement)

    def acquaint(self, request: InferenceRequest, pair: ChosenPair) -> None:
        """A warm-up, which nobody routed, teaches what a request would."""
        self._placer.explain(request, (pair.prefill, pair.decode))

    def cold_pairs(self, model: str, halves: Halves) -> list[ChosenPair]:
        """The usable pairs of a model that never handed over, or of whose prefill too little is known: to be warmed
        up."""
        link = self.link(model)
        return [
            replace(self._chosen(0.0, giver, taker, 0.0, 0.0), report=self._warmed_up)
            for giver in halves.prefills
            for taker in halves.decodes
            if _wants_warm_up(giver)
            and giver.is_usable
            and taker.is_usable
            and self.fits.why_apart(giver, taker) is None
            and not (link.is_warm(giver.endpoint_id, taker.endpoint_id) and not self._margin_of(giver))
            and not self._rests_now(giver, taker)
        ]

    def sweep(self, endpoints: Iterable[Endpoint]) -> None:
        """Follow the endpoints: one that was away has no connections to others any more, and may be another version."""
        endpoints = tuple(endpoints)
        self.fits.review(endpoints, self._meters_of)
        now_outages = {one: one.outages for one in endpoints if one.seat is not None}
        for endpoint, outages in self._outages.items():
            if now_outages.get(endpoint) != outages:
                self.link(endpoint.plan.model).forget(endpoint.endpoint_id)
                for pair in [pair for pair in self._rests if endpoint in pair]:
                    del self._rests[pair]
        self._outages = now_outages

    # --- inside

    def _whole_way(self, request: InferenceRequest, whole: Endpoint) -> tuple[WholeWay, float]:
        placing, decision = self._placer.explain(request, (whole,))
        view = decision.view
        assert view is not None
        candidate, pace_s = view.candidates[0], view.paces_s[0]
        prefill_s = view.work_tokens[0] * pace_s
        ttft_s = _ttft_s(candidate, view.ahead_tokens[0] + view.work_tokens[0])
        way = WholeWay(
            ttft_s=ttft_s,
            uncached_tokens=round(view.uncached_tokens[0]),
            prefill_s=prefill_s,
            running_decodes=candidate.running,
        )
        return way, placing.input_tokens

    def _best_pair(
        self, request: InferenceRequest, whole: Endpoint, halves: Halves, tokens: float
    ) -> tuple[Pair | None, ChosenPair | None]:
        givers = {str(one.endpoint_id): one for one in halves.prefills if _takes(one, request)}
        takers = {str(one.endpoint_id): one for one in halves.decodes if _takes(one, request)}
        if not givers or not takers:
            return None, None
        _, decision = self._placer.explain(request, tuple(givers.values()))
        view = decision.view
        assert view is not None
        costs: dict[str, tuple[float, float]] = {}
        for place, candidate in enumerate(view.candidates):
            ahead, work = view.ahead_tokens[place], view.work_tokens[place]
            costs[candidate.endpoint_id] = (_ttft_s(candidate, ahead + work), ahead / max(1.0, ahead + work))
        prefills = [
            Half(name=name, cost_s=costs[name][0], has_room=_has_room(one, whole))
            for name, one in givers.items()
            if name in costs
        ]
        decodes = [
            Half(name=name, cost_s=self._step_s(one), has_room=_has_room(one, whole)) for name, one in takers.items()
        ]
        link, size = self.link(request.requested_model), self._sizes.size(next(iter(givers.values())), tokens)

        def fits(giver: str, taker: str) -> bool:
            return self.fits.why_apart(givers[giver], takers[taker]) is None

        def predict_s(giver: str, taker: str) -> float:
            return link.predict(giver, taker, size) + self._rest_s(givers[giver], takers[taker])

        pair = choose_pair(prefills, decodes, fits=fits, predict_transfer_s=predict_s)
        if pair is None:
            return None, None
        prefill_s, queue_ratio = costs[pair.prefill]
        giver = givers[pair.prefill]
        chosen = self._chosen(tokens, giver, takers[pair.decode], prefill_s + self._margin_of(giver), queue_ratio)
        return pair, replace(chosen, answer_s=self._answer_s(request, chosen.decode))

    def _chosen(
        self, tokens: float, giver: Endpoint, taker: Endpoint, prefill_s: float, queue_ratio: float
    ) -> ChosenPair:
        plan = giver.plan.handover
        assert plan is not None
        size = self._sizes.size(giver, tokens)
        return ChosenPair(
            prefill=giver,
            decode=taker,
            input_tokens=tokens,
            prefill_s=prefill_s or UNKNOWN_SPEED_S,
            queue_ratio=queue_ratio,
            transfer_s=self.link(giver.plan.model).predict(giver.endpoint_id, taker.endpoint_id, size),
            decode_s=self._step_s(taker),
            answer_s=None,
            bound_s=plan.timeout_s,
            spent=self.spent,
            report=self._report,
        )

    def _margin_of(self, giver: Endpoint) -> float:
        """What a prompt may take there beyond what is predicted, while little is known."""
        candidate = self._placer.candidate_of(giver)
        is_known = candidate is not None and candidate.pool.ttft.points >= LEARNED_POINTS
        return 0.0 if is_known else UNKNOWN_SPEED_S

    def _step_s(self, taker: Endpoint) -> float:
        """Its next step with one request more: what that one waits, and what it costs those who are there."""
        candidate = self._placer.candidate_of(taker)
        if candidate is None:
            return 0.0
        line, running = candidate.pool.tpot, candidate.running + candidate.foreign
        ahead_s = candidate.ahead_tokens(monotonic()) * candidate.pool.ttft.slope * candidate.factor
        return line.predict(running + 1) + line.slope * running + ahead_s

    def _answer_s(self, request: InferenceRequest, taker: Endpoint) -> float | None:
        limit_tokens = request.output_limit_tokens
        candidate = self._placer.candidate_of(taker)
        if limit_tokens is None or candidate is None:
            return None
        return LEAST_ANSWER_S + 3.0 * limit_tokens * candidate.pool.tpot.predict(candidate.running + 1)

    def _rests_now(self, giver: Endpoint, taker: Endpoint) -> bool:
        rest = self._rests.get((giver, taker))
        return rest is not None and monotonic() < rest.until_mono_s

    def _rest_s(self, giver: Endpoint, taker: Endpoint) -> float:
        """What a pair that rests must be better by, to be taken all the same."""
        return LONGEST_REST_S if self._rests_now(giver, taker) else 0.0

    def _warmed_up(self, pair: ChosenPair, report: HandoverReport) -> None:
        """Of no caller's request: nothing is counted."""
        if report.how is not HandoverEnd.COMPLETED:
            self._rest(pair)
            return
        self._rests.pop((pair.prefill, pair.decode), None)
        self.link(pair.prefill.plan.model).observe(
            pair.prefill.endpoint_id, pair.decode.endpoint_id, size_bytes=0.0, transfer_s=report.transfer_s or 0.0
        )

    def _rest(self, pair: ChosenPair) -> None:
        before = self._rests.get((pair.prefill, pair.decode))
        if before is not None and monotonic() < before.until_mono_s:
            return  # it was under way beside the one that failed first: one failure
        for_s = FIRST_REST_S if before is None else min(LONGEST_REST_S, 2 * before.for_s)
        self._rests[pair.prefill, pair.decode] = Rest(monotonic() + for_s, for_s)

    def _report(self, pair: ChosenPair, report: HandoverReport) -> None:
        meters = self._meters_of(pair.prefill.plan.model)
        meters.ended[report.how.value] = meters.ended.get(report.how.value, 0) + 1
        if report.failure is not None and report.how is HandoverEnd.FELL_BACK:
            why = report.failure.value
            meters.fallbacks[why] = meters.fallbacks.get(why, 0) + 1
            self._rest(pair)
        if report.prefill_s is not None:
            meters.observe_stage("prefill_queue", report.prefill_s * pair.queue_ratio)
            meters.observe_stage("prefill", report.prefill_s * (1.0 - pair.queue_ratio))
        if report.transfer_s is not None and report.how is not HandoverEnd.FELL_BACK:
            self._learn(pair, report.transfer_s, meters)
        if report.decode_wait_s is not None:
            meters.observe_stage("decode_queue", report.decode_wait_s)

    def _learn(self, pair: ChosenPair, transfer_s: float, meters: HandoverMeters) -> None:
        self._rests.pop((pair.prefill, pair.decode), None)
        size = self._sizes.size(pair.prefill, pair.input_tokens)
        self.link(pair.prefill.plan.model).observe(
            pair.prefill.endpoint_id, pair.decode.endpoint_id, size_bytes=size, transfer_s=transfer_s
        )
        meters.observe_stage("transfer", transfer_s)
        meters.tokens += pair.input_tokens
        meters.transfer_s += transfer_s
        if self._sizes.is_known(pair.prefill):
            meters.transferred_bytes += size

    def _find_unfit(self, request: InferenceRequest, halves: Halves) -> str | None:
        """What keeps all engines apart that could take the request now; None: something else, or nothing, does."""
        givers = [one for one in halves.prefills if _takes(one, request)]
        return self.fits.why_all_apart(givers, [one for one in halves.decodes if _takes(one, request)])

    def refusal(self, request: InferenceRequest, halves: Halves) -> RequestError:
        """Why a model whose engines are halves alone cannot answer."""
        bar = find_split_bar(request.fields, request.dialect)
        name = request.requested_model
        if bar == "api":
            message = (
                f"model {name!r} runs on prefill and decode engines, which answer chat completions and completions "
                f"alone, not {request.path.decode('ascii')}; operators: declare a pool of the model without a role"
            )
            return RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message)
        if bar is not None:
            message = f"model {name!r} runs on prefill and decode engines, which cannot do this ({bar}); leave it out"
            return RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=bar)
        if self._find_unfit(request, halves) is not None or self.fits.why_all_apart(halves.prefills, halves.decodes):
            message = f"the prefill and decode engines of model {name!r} do not fit; operators: headrace status"
            return RequestError(ErrorCode.KV_LAYOUT_MISMATCH, message)
        up = [sum(one.is_usable for one in side) for side in (halves.prefills, halves.decodes)]
        message = (
            f"model {name!r} has {up[0]} of {len(halves.prefills)} prefill and {up[1]} of {len(halves.decodes)} decode "
            "engines ready, and none of them has room; retry in a moment"
        )
        return RequestError(ErrorCode.DECODE_UNAVAILABLE, message, retry_after_s=1.0)


@dataclass(slots=True, eq=False)
class ArrivingPlacement:
    """Decode's part: routing counts it as one that generates, and learns nothing of the prompt from it. Implements
    forwarding's `Placement`.
    """

    placement: Placement

    def __post_init__(self) -> None:
        self.placement.candidate.arrive(self.placement, monotonic())

    def first_token(self, now_mono_s: float) -> None:
        self.placement.first_token_mono_s = now_mono_s

    def ended(self, usage: TokenUsage, *, is_answered: bool) -> None:
        told = TokenUsage(input_tokens=None, output_tokens=usage.output_tokens, cached_input_tokens=None)
        self.placement.ended(told, is_answered=is_answered)


def _ttft_s(candidate: Candidate, work_tokens: float) -> float:
    return candidate.factor * candidate.pool.ttft.predict(work_tokens)


def _takes(endpoint: Endpoint, request: InferenceRequest) -> bool:
    is_worded = request.rewrites is None or endpoint.plan.name in request.rewrites
    is_near = request.regions is None or endpoint.plan.region in request.regions
    return endpoint.is_usable and is_worded and is_near


def _has_room(endpoint: Endpoint, claimed: Endpoint) -> bool:
    """Admission has claimed a place at `claimed` already."""
    limit, seat = endpoint.load.sequences_limit, endpoint.seat
    if seat is not None and seat.slots is not None and endpoint is not claimed and not seat.slots.idle:
        return False
    return limit is None or endpoint is claimed or endpoint.in_flight < limit


def _version(endpoint: Endpoint) -> str | None:
    return None if endpoint.told_shape is None else endpoint.told_shape.version


def _wants_warm_up(giver: Endpoint) -> bool:
    return giver.plan.handover is not None and giver.plan.handover.warm_up


def _forced(chosen: ChosenPair | None) -> SplitReason:
    return SplitReason.NO_PAIR if chosen is None else SplitReason.GAIN
