"""What routing knows at run time, and keeps from plan to plan: candidates, prompt index, claims, hits.

The shell of `core/`: it reads requests and endpoints, the clock, and calls the decision. Approximate and per worker:
others learn the same from their own traffic, and until then agree by the blocks' names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import msgspec

from headrace.declaration.routing_plan import RoutingPlan
from headrace.domain.request import InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.core.candidate import Candidate, Claim, PoolSpeed
from headrace.gateway.routing.core.chain import EDGES, PromptChain, chain_of, seed_of
from headrace.gateway.routing.core.decision import Ask, Decision, Fleet, Policy, decide, fleet_of
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.core.tallies import FAMILY_BLOCKS, Tallies
from headrace.gateway.routing.miss_watch import MissWatch
from headrace.gateway.routing.plugins import make_policy
from headrace.gateway.routing.prompt_parts import prompt_parts

FIRST_BYTES_PER_TOKEN = 4.0
"""Until answers have told: English in the vocabularies of current models."""
FIRST_OUTPUT_TOKENS = 250.0
"""Expected of a model whose answers have told nothing yet. Chosen."""
LEARNING_STEP = 0.02
SWEPT_BLOCKS = 2000
"""Blocks of restarted or removed endpoints forgotten in one sweep: less than a millisecond."""


@dataclass(slots=True, kw_only=True)
class ModelPlacing:
    """One model: its policy, and what its answers have taught."""

    plan: RoutingPlan
    policy: Policy
    bytes_per_token: float = FIRST_BYTES_PER_TOKEN
    output_tokens: float = FIRST_OUTPUT_TOKENS
    endpoints: Sequence[Endpoint] | None = None
    """Those that the last request could choose from, mostly the same ones: their candidates are known already."""
    candidates: Sequence[Candidate] = ()
    fleet: Fleet | None = None

    def learn(self, prompt_bytes: int, usage: TokenUsage) -> None:
        if usage.input_tokens and prompt_bytes:
            seen = prompt_bytes / usage.input_tokens
            self.bytes_per_token += LEARNING_STEP * (seen - self.bytes_per_token)
        if usage.output_tokens:
            self.output_tokens += LEARNING_STEP * (usage.output_tokens - self.output_tokens)


class Placing(msgspec.Struct, kw_only=True, eq=False):
    """What routing keeps of one request between choices (`InferenceRequest.placing`)."""

    model: ModelPlacing
    chain: PromptChain | None
    input_tokens: float
    session: str | None
    decision: Decision | None = None


class Placement(msgspec.Struct, kw_only=True, eq=False):
    """One attempt under way: hears of its first token and its end. Implements forwarding's `Placement`."""

    placer: "Placer"
    request: InferenceRequest
    placing: Placing
    claim: Claim

    def first_token(self, now_mono_s: float) -> None:
        self.claim.candidate.first_token(self.claim, now_mono_s)

    def ended(self, usage: TokenUsage, *, is_answered: bool) -> None:
        """The attempt is over; `usage` is what its engine told."""
        claim, placing = self.claim, self.placing
        claim.candidate.end(
            claim,
            self.placer.index,
            monotonic(),
            is_answered=is_answered,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_input_tokens,
            output_tokens=usage.output_tokens,
            size_per_token=placing.model.bytes_per_token,
        )
        if is_answered:
            self.placer.learn(self, usage)


class Placer:
    """Concurrency: event loop only."""

    def __init__(self, load_secret: Callable[[], bytes]) -> None:
        self.index = PrefixIndex()
        self.tallies = Tallies()
        self.misses = MissWatch(load_secret)
        self._load_secret = load_secret
        self._secret: bytes | None = None
        self._seeds: dict[tuple[str, str], int] = {}
        self._models: dict[str, ModelPlacing] = {}
        self._candidates: dict[Endpoint, Candidate] = {}
        self._endpoints: dict[int, Endpoint] = {}
        """By the candidate's bit."""
        self._speeds: dict[str, PoolSpeed] = {}
        """By pool."""
        self._turn = 0

    def adopt(self, plans: Mapping[str, RoutingPlan]) -> None:
        """Follow a new plan; what was learned stays."""
        self.misses.adopt(plans)
        before = self._models
        self._models = {}
        for name, plan in plans.items():
            known = before.get(name)
            if known is not None:
                known.plan, known.policy = plan, known.policy if known.plan == plan else make_policy(plan)
            self._models[name] = known or ModelPlacing(plan=plan, policy=make_policy(plan))

    def pick(self, request: InferenceRequest, endpoints: Sequence[Endpoint]) -> Endpoint:
        """Choose one of `endpoints` (at least one). Nothing is held there until `placed`."""
        placing = self._placing_of(request, endpoints)
        decision = placing.decision = self._decide(request, placing, endpoints, explains=False)
        return self._endpoints[decision.picked.bit]

    def explain(self, request: InferenceRequest, endpoints: Sequence[Endpoint]) -> tuple[Placing, Decision]:
        """Choose as `pick` would, with every cost written down; the turn is not used up."""
        placing = self._placing_of(request, endpoints)
        decision = self._decide(request, placing, endpoints, explains=True)
        self._turn -= 1
        return placing, decision

    def placed(self, request: InferenceRequest, endpoint: Endpoint) -> Placement | None:
        """The request is being sent to `endpoint`: hold its place there. None where there was no choice to make."""
        placing = request.placing
        candidate = self._candidates.get(endpoint)
        if not isinstance(placing, Placing) or candidate is None:
            return None
        decision = placing.decision
        held_tokens = decision.held_tokens if decision is not None and decision.picked is candidate else 0.0
        claim = candidate.claim(
            self.index,
            placing.chain,
            input_tokens=placing.input_tokens,
            held_tokens=held_tokens,
            now_mono_s=monotonic(),
            shows_first_token=request.is_stream,
        )
        return Placement(placer=self, request=request, placing=placing, claim=claim)

    def learn(self, placement: Placement, usage: TokenUsage) -> None:
        """An answer came with its usage."""
        placing, chain, model = placement.placing, placement.placing.chain, placement.request.requested_model
        if chain is not None:
            placing.model.learn(chain.length, usage)
        if usage.input_tokens is not None and usage.cached_input_tokens is not None:
            names = chain.names if chain is not None else ()
            self.tallies.add(
                model,
                placement.request.tenant,
                names[min(FAMILY_BLOCKS, len(names)) - 1] if names else None,
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_input_tokens,
                expected_tokens=placement.claim.expected_cached_tokens,
            )
            endpoint = self._endpoints.get(placement.claim.candidate.bit)
            if endpoint is not None:
                self.misses.note(placement.request, endpoint, usage, placement.claim.claimed_mono_s)

    def sweep(self, endpoints: Iterable[Endpoint], now_mono_s: float) -> None:
        """Follow the endpoints: capacities and strangers' load by their engines' own numbers; what restarted or is gone
        holds nothing."""
        current = set(endpoints)
        for endpoint, candidate in list(self._candidates.items()):
            if endpoint not in current:
                del self._candidates[endpoint]
                self._forget_fleets()
                self.index.retire(candidate.shelf)
                self._endpoints.pop(candidate.bit, None)
                continue
            if candidate.outages != endpoint.outages:
                self._restarted(endpoint, candidate)
            candidate.forget_stale(now_mono_s)
            measured = endpoint.load.fresh(now_mono_s)
            candidate.foreign = 0 if measured is None else measured.foreign
            model = self._models.get(endpoint.plan.model)
            if model is not None:
                kv_tokens = measured.kv_capacity_tokens if measured is not None else None
                candidate.shelf.capacity = (kv_tokens or model.plan.kv_tokens) * model.bytes_per_token
        self.index.sweep(SWEPT_BLOCKS)

    def known(self) -> Iterator[tuple[Endpoint, Candidate, float]]:
        """Every endpoint that was ever chosen from, with the bytes that a token of its model's prompts has."""
        for endpoint, candidate in self._candidates.items():
            model = self._models.get(endpoint.plan.model)
            yield endpoint, candidate, FIRST_BYTES_PER_TOKEN if model is None else model.bytes_per_token

    def candidate_of(self, endpoint: Endpoint) -> Candidate | None:
        return self._candidates.get(endpoint)

    def _forget_fleets(self) -> None:
        """A candidate has another bit now, or none."""
        for model in self._models.values():
            model.endpoints = model.fleet = None

    def _restarted(self, endpoint: Endpoint, candidate: Candidate) -> None:
        """Its KV memory is empty now; how fast it is, it will be again."""
        self._forget_fleets()
        self._endpoints.pop(candidate.bit, None)
        plan = self._models[endpoint.plan.model].plan if endpoint.plan.model in self._models else None
        shelf = self.index.new_shelf(
            capacity=candidate.shelf.capacity, max_blocks=plan.max_blocks if plan else candidate.shelf.max_blocks
        )
        self.index.retire(candidate.shelf)
        candidate.adopt_shelf(shelf)
        candidate.outages = endpoint.outages
        self._endpoints[candidate.bit] = endpoint

    def _decide(
        self, request: InferenceRequest, placing: Placing, endpoints: Sequence[Endpoint], *, explains: bool
    ) -> Decision:
        self._turn += 1
        model = placing.model
        if model.endpoints is not endpoints and model.endpoints != endpoints:
            known = self._candidates
            model.candidates = [known.get(endpoint) or self._meet(endpoint, model) for endpoint in endpoints]
            model.endpoints, model.fleet = endpoints, fleet_of(model.candidates)
        output_tokens = model.output_tokens
        limit_tokens = request.output_limit_tokens
        ask = Ask(
            input_tokens=placing.input_tokens,
            output_tokens=output_tokens if limit_tokens is None or limit_tokens > output_tokens else limit_tokens,
            request_class=request.request_class,
            chain=placing.chain,
            session=placing.session,
            turn=self._turn,
            now_mono_s=monotonic(),
        )
        return decide(ask, model.candidates, model.policy, self.index, fleet=model.fleet, explains=explains)

    def _placing_of(self, request: InferenceRequest, endpoints: Sequence[Endpoint]) -> Placing:
        placing = request.placing
        if isinstance(placing, Placing):
            return placing
        model = self._models[request.requested_model]
        chain = self._chain_of(request, endpoints) if model.policy.uses_prefixes else None
        input_tokens = float(request.estimated_input_tokens)
        if not input_tokens:
            length = chain.length if chain is not None else len(request.body)
            input_tokens = max(1.0, length / model.bytes_per_token)
        session = _session_of(request, model.plan.session_field) if model.policy.has_sessions else None
        placing = Placing(model=model, chain=chain, input_tokens=input_tokens, session=session)
        request.placing = placing
        return placing

    def _chain_of(self, request: InferenceRequest, endpoints: Sequence[Endpoint]) -> PromptChain | None:
        parts = prompt_parts(request.fields, request.dialect)
        if not parts or (len(parts) == 1 and len(parts[0]) < EDGES[0]):
            return None
        tenant = request.tenant if endpoints[0].plan.isolates_tenants else ""
        key = (request.requested_model, tenant)
        seed = self._seeds.get(key)
        if seed is None:
            if self._secret is None:
                self._secret = self._load_secret()
            seed = self._seeds[key] = seed_of(self._secret, key)
        return chain_of(parts, seed)

    def _meet(self, endpoint: Endpoint, model: ModelPlacing) -> Candidate:
        shelf = self.index.new_shelf(
            capacity=model.plan.kv_tokens * model.bytes_per_token, max_blocks=model.plan.max_blocks
        )
        candidate = self._candidates[endpoint] = Candidate(
            endpoint.endpoint_id, shelf, self._speeds.setdefault(endpoint.plan.name, PoolSpeed())
        )
        candidate.outages = endpoint.outages
        self._endpoints[candidate.bit] = endpoint
        return candidate


def _session_of(request: InferenceRequest, field: str) -> str | None:
    raw = request.fields.get(field)
    if raw is None:
        return None
    try:
        session = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return f"{request.tenant}/{session}" if isinstance(session, str) else None
