"""Chooses an endpoint for an attempt: usable ones of the model's pools, not tried yet, the one that answers soonest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from headrace.declaration.routing_plan import RoutingPlan
from headrace.domain.endpoint import EndpointState
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.routing_status import CandidateView, RouteExplanation
from headrace.gateway.endpoints.directory import EndpointDirectory, count_states
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.endpoints.serving import ServedModel
from headrace.gateway.routing.context_fit import (
    as_short,
    fitting,
    least_context,
    needed_tokens,
    note_too_long,
    too_long,
    without_path,
)
from headrace.gateway.routing.core.model_choice import ModelChoice
from headrace.gateway.routing.core.pool_rules import PoolRules, make_rules
from headrace.gateway.routing.core.scorers import hash_of
from headrace.gateway.routing.disaggregation.handovers import ArrivingPlacement, Halves, Handovers, sort_halves
from headrace.gateway.routing.miss_watch import WatchedAttempt
from headrace.gateway.routing.model_view import request_for, with_models
from headrace.gateway.routing.placement import Placement
from headrace.gateway.routing.placer import Placer
from headrace.gateway.routing.view import explain_choice


@dataclass(slots=True, eq=False)
class Group:
    """Where requests go that are alike in model, path and regions; its endpoints as the directory had them."""

    pools: tuple[str, ...]
    rules: PoolRules | None
    endpoints: tuple[Endpoint, ...] = ()
    version: int = -1
    """Of the directory."""
    least_context: int | None = None
    """Of them, as far as known: what needs no more than that fits anywhere."""
    halves: Halves | None = None
    """Those of its endpoints between which prompts are handed over."""


class Router:
    """Routes by one gateway plan; endpoint states are read at each choice. Concurrency: event loop only."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        directory: EndpointDirectory,
        placer: Placer,
        plans: Mapping[str, RoutingPlan],
        handovers: Handovers | None = None,
    ) -> None:
        self._directory = directory
        self._handovers = handovers
        self._groups: dict[tuple[str, bytes, frozenset[str] | None], Group] = {}
        """By model, path and regions."""
        self._models = models
        self._placer = placer
        self._plans = plans
        self._rules: dict[str, PoolRules] = {}
        """Only of models that have any."""
        for name, model in models.items():
            rules = make_rules({pool.name: pool.accepts for pool in model.pools}, plans[name].split)
            if rules is not None:
                self._rules[name] = rules

    def choose(self, request: InferenceRequest, tried: tuple[Endpoint, ...] = ()) -> Endpoint:
        """Return the endpoint for the next attempt; one already tried only where no other is usable, and an ejected
        one only where nothing else is left, prefill engines that can answer alone included: it answers probes, so
        trying beats a sure refusal.

        Raises: RequestError NO_READY_ENDPOINT, saying what the endpoints are doing.
        """
        candidates = self._candidates(request)
        if len(candidates) == 1 and not tried and candidates[0].is_usable:
            return candidates[0]
        usable = _usable(candidates)
        fresh = [endpoint for endpoint in usable if endpoint not in tried] if tried else usable
        if not fresh:
            usable = fresh = self._reserve(request, tried) or usable or _last_resort(candidates, tried)
        if not usable:
            if request.choice is not None and not tried and self.move_on(request):
                return self.choose(request)
            raise self.refusal(request)
        left = fresh or usable
        if len(left) < len(candidates) or not isinstance(candidates, tuple):
            self._count_left_out(request, candidates, len(usable), left_out="tried", left=len(left))
        return left[0] if len(left) == 1 else self._placer.pick(request, left)

    def placed(self, request: InferenceRequest, endpoint: Endpoint) -> Placement | WatchedAttempt | None:
        """The request is being sent to `endpoint`; None where nobody wants to hear what becomes of it."""
        if request.placing is None:
            return self._placer.misses.watch(request, endpoint)
        return self._placer.placed(request, endpoint)

    def explain(self, request: InferenceRequest) -> RouteExplanation:
        """Say what `choose` would do with the request now, and why; nothing is held."""
        filtered: list[CandidateView] = []
        candidates = list(self._candidates(request))
        chosen_from = set(candidates)
        for pool in self._models[request.requested_model].pools:
            others = (each for each in self._directory.of_pool(pool.name) if each not in chosen_from)
            filtered += [_left_out(endpoint, self._why_not(request, endpoint)) for endpoint in others]
        usable = [endpoint for endpoint in candidates if endpoint.is_usable]
        reason = "lowest cost" if len(usable) > 1 else "the only usable endpoint"
        if not usable and (usable := list(self._reserve(request, ()))):
            reason = "nobody else is left: engines that compute prompts for others answer alone"
        if not usable:
            usable = list(_last_resort(candidates))
            reason = "nothing else is left: ejected endpoints are tried" if usable else "no endpoint is ready"
        left = set(usable)
        filtered = [view for view in filtered if view.endpoint not in {one.endpoint_id for one in left}]
        for endpoint in candidates:
            if endpoint not in left:
                state = EndpointState.DRAINING if endpoint.is_draining else endpoint.state
                filtered.append(_left_out(endpoint, f"{state.value}: {endpoint.reason}"))
        found = explain_choice(self._placer, request, usable, filtered, reason)
        if (halves := self._halves(request)) is not None and self._handovers is not None:
            whole = next((one for one in usable if one.endpoint_id == found.picked), None)
            found = self._handovers.explained(found, request, whole, halves)
            if found.split is not None and not found.split.is_split and whole is not None and not _is_able(whole):
                found = self._explain_whole(request, found, usable, filtered, halves)
        if request.split_pool and self._sticky(request) is None:
            self._rules[request.requested_model].give_back(request.split_pool)
            request.split_pool = None
        return found if request.choice is None else with_models(found, request.choice)

    def _explain_whole(
        self,
        request: InferenceRequest,
        found: RouteExplanation,
        usable: Sequence[Endpoint],
        filtered: list[CandidateView],
        halves: Halves,
    ) -> RouteExplanation:
        """What comes first answers nothing alone, and the request cannot be split: others, or a refusal."""
        assert self._handovers is not None
        why = self._handovers.refusal(request, halves).message
        able = [one for one in usable if _is_able(one)] or list(self._reserve(request, ()))
        left_out = [_left_out(one, "role: it answers nothing alone") for one in usable if not _is_able(one)]
        filtered = [one for one in filtered if one.endpoint not in {each.endpoint_id for each in able}] + left_out
        reason = "the only ones that answer alone" if able else why
        whole = explain_choice(self._placer, request, able, filtered, reason)
        return msgspec.structs.replace(whole, split=found.split)

    def _why_not(self, request: InferenceRequest, endpoint: Endpoint) -> str:
        """Why an endpoint of the model's pools is no candidate, in the order in which the filters apply."""
        pool, path = endpoint.plan, request.path.decode("ascii")
        if not self._models[request.requested_model].serves(path, pool):
            return f"path: its pool does not answer {path}"
        if request.regions is not None and pool.region not in request.regions:
            return f"region: {pool.region or 'none declared'}, the key allows {', '.join(sorted(request.regions))}"
        every = self._group_of(request).endpoints
        if endpoint in every and endpoint not in fitting(every, request):
            return (
                f"context: it holds {endpoint.context_tokens} tokens, the request needs about {needed_tokens(request)}"
            )
        rules = self._rules.get(request.requested_model)
        if rules is not None and request.pinned_endpoint is None:
            refusal, _ = rules.judge(
                pool.name, request.tenant, request.request_class.value, request.estimated_input_tokens
            )
            if refusal is not None:
                return f"accepts: its pool {refusal}"
            if rules.split:
                return "split: the request goes to another pool by weight"
        if endpoint.seat is not None and endpoint.seat.is_reserve:
            return "role: it computes prompts for others, and answers alone only where nobody else can"
        if request.rewrites is not None and pool.name not in request.rewrites:
            return "compatibility: its engine has no words for what is asked"
        return f"pinned: only {request.pinned_endpoint} holds the earlier answer"

    def find(self, request: InferenceRequest, has_room: Callable[[Endpoint], bool]) -> Endpoint | None:
        """Return the endpoint for a first attempt, of those that admission finds room at; None: none has any.

        Raises: RequestError NO_READY_ENDPOINT where nothing could be chosen, room or not.
        """
        candidates = self._candidates(request)
        usable = _usable(candidates) or self._reserve(request, ()) or _last_resort(candidates)
        if not usable:
            raise self.refusal(request)
        with_room = tuple([endpoint for endpoint in usable if has_room(endpoint)])
        if not with_room:
            with_room = self._spilling(request, has_room)
            if not with_room:
                return None
            return with_room[0] if len(with_room) == 1 else self._placer.pick(request, with_room)
        if len(with_room) == 1 and len(candidates) == 1:
            return with_room[0]
        if len(with_room) < len(candidates) or not isinstance(candidates, tuple):
            self._count_left_out(request, candidates, len(usable), left_out="no-room", left=len(with_room))
        return self._placer.pick(request, with_room)

    def _count_left_out(
        self, request: InferenceRequest, candidates: Sequence[Endpoint], usable: int, *, left_out: str, left: int
    ) -> None:
        """Count what was no candidate of a choice, by the first filter that left it out; nothing where all was one."""
        counts, model = self._placer.left_out, request.requested_model
        if not isinstance(candidates, tuple):  # not all of the group's endpoints, or not in its order
            pinned, words = request.pinned_endpoint, request.rewrites
            why = "pinned" if pinned is not None else "compatibility" if words is not None else "pool-rules"
            counts[model, why] += max(0, len(self._group_of(request).endpoints) - len(candidates))
        counts[model, "not-usable"] += max(0, len(candidates) - usable)
        counts[model, left_out] += max(0, usable - left)

    def _spilling(self, request: InferenceRequest, has_room: Callable[[Endpoint], bool]) -> tuple[Endpoint, ...]:
        """Endpoints with room of pools that take the request while those that it is for are full."""
        group = self._group_of(request)
        if group.rules is None or request.pinned_endpoint is not None:
            return ()
        pools = group.rules.spill(
            group.pools, request.tenant, request.request_class.value, request.estimated_input_tokens
        )
        fits = fitting(group.endpoints, request) if pools else ()
        words = request.rewrites
        return tuple(
            one
            for one in fits
            if one.plan.name in pools and one.is_usable and has_room(one) and (words is None or one.plan.name in words)
        )

    def group(self, request: InferenceRequest) -> tuple[str, ...] | None:
        """Return the pools that may serve a request, the same object for the like of it; None where it has needs of
        its own: an endpoint that holds its earlier answer, or pools that can do what it asks.
        """
        if request.rewrites is not None or request.pinned_endpoint is not None:
            return None
        if request.requested_model in self._rules:
            return None
        group = self._group_of(request)
        is_long = group.least_context is not None and needed_tokens(request) > group.least_context
        if is_long and len(fitting(group.endpoints, request)) < len(group.endpoints):
            return None
        return group.pools

    def has_other(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> bool:
        """Whether an endpoint that was not tried yet is usable."""
        if any(endpoint.is_usable and endpoint not in tried for endpoint in self._candidates(request)):
            return True
        if request.split_pool and tried:  # its share is of first attempts: others help out
            request.split_pool = ""
            return self.has_other(request, tried)
        return bool(self._reserve(request, tried))

    def refusing(self, request: InferenceRequest, endpoint: Endpoint, error: RequestError) -> tuple[Endpoint, ...]:
        """`endpoint` has refused the request as not for it. Returns all that would say the same, of any model; where
        the prompt is too long, the request is known from now on to need more than that endpoint has.
        """
        if error.code is ErrorCode.ROUTE_NOT_FOUND:
            return without_path(endpoint, self._directory)
        note_too_long(request, endpoint, error)
        return as_short(endpoint, error, self._directory)

    def offered(self, request: InferenceRequest) -> Sequence[Endpoint]:
        """The endpoints that a first attempt could go to now: usable ones or, in need, ejected ones."""
        candidates = self._candidates(request)
        return _usable(candidates) or self._reserve(request, ()) or _last_resort(candidates)

    def move_on(self, request: InferenceRequest, tried: tuple[Endpoint, ...] = ()) -> bool:
        """Where the caller's word stands for several models: make the request one for the next of them that has a
        usable endpoint which was not tried. False: there is none.
        """
        choice = request.choice
        if not isinstance(choice, ModelChoice):
            return False
        for place in range(choice.chosen + 1, len(choice.offers)):
            offer = choice.offers[place]
            if self.has_other(request_for(request, offer.model), tried):
                choice.chosen = place
                request.become(offer.model, offer.input_tokens)
                return True
        return False

    # --- handing over

    def split(
        self, request: InferenceRequest, endpoint: Endpoint, tried: tuple[Endpoint, ...] = ()
    ) -> ChosenPair | None:
        """Return who computes the prompt of a request that is for `endpoint`, and who answers it, not one of `tried`
        where there is another; None: `endpoint` alone. Raises: RequestError where that cannot answer alone, and
        nobody can help it.
        """
        halves = self._halves(request)
        if halves is None or self._handovers is None:
            return None
        return self._handovers.split(request, endpoint, halves, tried)

    def arriving(self, request: InferenceRequest, endpoint: Endpoint) -> ArrivingPlacement | None:
        """A prompt that is computed elsewhere comes to `endpoint`."""
        return None if self._handovers is None else self._handovers.arriving(request, endpoint)

    def acquaint(self, request: InferenceRequest, pair: ChosenPair) -> None:
        """A request that nobody routed is sent to a pair."""
        if self._handovers is not None:
            self._handovers.acquaint(request, pair)

    def cold_pairs(self) -> list[ChosenPair]:
        """Return the pairs that have never handed over, of all models."""
        found: list[ChosenPair] = []
        for name, model in self._models.items():
            _, halves = sort_halves(one for pool in model.pools for one in self._directory.of_pool(pool.name))
            if halves is not None and self._handovers is not None:
                found += self._handovers.cold_pairs(name, halves)
        return found

    def choose_whole(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> Endpoint | None:
        """Return an endpoint that answers the request alone, one of `tried` only where there is no other; None: none
        can.
        """
        able = [one for one in self._candidates(request) if _is_able(one)]
        takers = _usable(able)
        fresh = [one for one in takers if one not in tried] or self._reserve(request, tried)
        fresh = fresh or takers or _last_resort(able, tried)
        if not fresh:
            return None
        return fresh[0] if len(fresh) == 1 else self._placer.pick(request, tuple(fresh))

    def _halves(self, request: InferenceRequest) -> Halves | None:
        """Of a model whose pools have rules, those that take the request."""
        group = self._group_of(request)
        halves = group.halves
        if halves is None or group.rules is None:
            return halves
        wanted = {one.plan.name for one in self._by_rules(group.rules, request, group.pools)}
        return Halves(*([one for one in side if one.plan.name in wanted] for side in (halves.prefills, halves.decodes)))

    def _reserve(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> Sequence[Endpoint]:
        """Prefill engines that could answer alone, which are let do so where nobody else can."""
        if self._handovers is None or request.pinned_endpoint is not None:
            return ()
        halves = self._halves(request)
        found = () if halves is None else halves.reserve
        words = request.rewrites
        return tuple(
            one for one in found if one.is_usable and one not in tried and (words is None or one.plan.name in words)
        )

    def model_of(self, pool: str) -> str | None:
        """The model that a pool serves."""
        return next(
            (name for name, model in self._models.items() if any(one.name == pool for one in model.pools)), None
        )

    def is_ready(self) -> bool:
        """Whether any pool can answer."""
        return any(endpoint.is_usable for endpoint in self._directory)

    def _candidates(self, request: InferenceRequest) -> Sequence[Endpoint]:
        group = self._groups.get((request.requested_model, request.path, request.regions))
        if group is None or group.version != self._directory.version:
            group = self._group_of(request)
        found: Sequence[Endpoint] = group.endpoints
        pools = group.pools
        least = group.least_context
        if least is not None and request.estimated_input_tokens + (request.output_limit_tokens or 1) > least:
            found = fitting(found, request)
            pools = tuple([pool for pool in pools if any(one.plan.name == pool for one in found)])
        if group.rules is not None and request.pinned_endpoint is None:
            fits = found
            found = self._by_rules(group.rules, request, pools)
            if fits is not group.endpoints:
                found = [one for one in found if one in fits]
            if group.halves is not None:
                found = [one for one in found if one.seat is None or not one.seat.is_reserve]
        if request.rewrites is not None:
            found = [endpoint for endpoint in found if endpoint.plan.name in request.rewrites]
        if request.pinned_endpoint is not None:
            return [endpoint for endpoint in found if endpoint.endpoint_id == request.pinned_endpoint]
        return found

    def _by_rules(self, rules: PoolRules, request: InferenceRequest, pools: tuple[str, ...]) -> list[Endpoint]:
        """The endpoints of the pools that take the request; in need, of those that overflow."""
        wanted, in_need = rules.sort(pools, request.tenant, request.request_class.value, request.estimated_input_tokens)
        alive = [pool for pool in wanted if any(one.is_usable for one in self._directory.of_pool(pool))]
        if not alive:
            wanted += in_need
        elif rules.split:
            picked = request.split_pool
            if picked is None or (picked and picked not in alive):
                picked = request.split_pool = rules.pick_split(alive, self._sticky(request))
            wanted = [picked] if picked else alive
        return [endpoint for pool in wanted for endpoint in self._directory.of_pool(pool)]

    def _sticky(self, request: InferenceRequest) -> int | None:
        """The same number for all requests of a conversation, where the caller names it."""
        raw = request.fields.get(self._plans[request.requested_model].session_field)
        return None if raw is None else hash_of(bytes(raw).decode("utf-8", "replace"))

    def _group_of(self, request: InferenceRequest) -> Group:
        model, regions = request.requested_model, request.regions
        key = (model, request.path, regions)
        group = self._groups.get(key)
        if group is None:
            served = self._models[model].pools_for(request.path.decode("ascii"))
            pools = tuple(pool.name for pool in served if regions is None or pool.region in regions)
            group = self._groups[key] = Group(pools, self._rules.get(model))
        if group.version != self._directory.version:
            group.version = self._directory.version
            found = (one for pool in group.pools for one in self._directory.of_pool(pool))
            group.endpoints, group.halves = sort_halves(found)
            group.least_context = least_context(group.endpoints)
        return group

    def refusal(self, request: InferenceRequest) -> RequestError:
        """Why no endpoint of the model can be given the request."""
        candidates = tuple(self._candidates(request))
        every = self._group_of(request).endpoints
        if not candidates and every and not fitting(every, request):
            return too_long(every, request)
        states = ", ".join(f"{count} {state.value}" for state, count in sorted(count_states(candidates).items()))
        message = (
            f"model {request.requested_model!r} has {len(candidates)} endpoints, 0 ready"
            + (f" ({states})" if states else "")
            + (f" in the regions of this key ({', '.join(sorted(request.regions))})" if request.regions else "")
            + "; operators: headrace status"
        )
        return RequestError(ErrorCode.NO_READY_ENDPOINT, message)


def _usable(candidates: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Those that are, itself where all are. Tuples: `Placer` compares them."""
    for endpoint in candidates:
        if not endpoint.is_usable:
            break
    else:
        return candidates
    return tuple([endpoint for endpoint in candidates if endpoint.is_usable])


def _is_able(endpoint: Endpoint) -> bool:
    """It answers requests alone."""
    return endpoint.seat is None or endpoint.seat.serves_whole


def _last_resort(candidates: Sequence[Endpoint], tried: tuple[Endpoint, ...] = ()) -> Sequence[Endpoint]:
    """The ejected ones, which are asked where nothing else is left: those that were tried only where all were."""
    ejected = tuple([endpoint for endpoint in candidates if endpoint.is_last_resort])
    return tuple([endpoint for endpoint in ejected if endpoint not in tried]) or ejected


def _left_out(endpoint: Endpoint, reason: str) -> CandidateView:
    return CandidateView(endpoint=endpoint.endpoint_id, pool=endpoint.plan.name, outcome="filtered", reason=reason)
