"""What routing knows at run time, and keeps from plan to plan: candidates, prompt index, claims, hits.

The shell of `core/`: it reads requests and endpoints, the clock, and calls the decision. Approximate and per worker:
others learn the same from their own traffic, and until then agree by the blocks' names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import msgspec

from headrace.declaration.routing_plan import RoutingPlan
from headrace.domain.request import InferenceRequest
from headrace.domain.undecodable import UNDECODABLE
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.core.candidate import Candidate, PoolSpeed
from headrace.gateway.routing.core.chain import EDGES, PromptChain, chain_of, seed_of
from headrace.gateway.routing.core.decision import Decision, Fleet, Policy, explain, fleet_of, pick
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.core.tallies import FAMILY_BLOCKS, Tallies
from headrace.gateway.routing.miss_watch import MissWatch
from headrace.gateway.routing.placement import Placement, Placing
from headrace.gateway.routing.plugins import make_policy
from headrace.gateway.routing.prompt_parts import prompt_parts

FIRST_BYTES_PER_TOKEN = 4.0
"""Until answers have told: English in the vocabularies of current models."""
FIRST_OUTPUT_TOKENS = 250.0
"""Expected of a model whose answers have told nothing yet. Chosen."""
LEARNING_STEP = 0.02
SHORT_PROMPT_BYTES = 768
SHORT_PREFILL_S = 0.025
"""A prompt is named and looked up from so many bytes on, or from where computing it takes so long on the slowest of its
pools. Chosen: so little is soon computed again, while looking it up was a fifth of what short requests cost here."""
SWEPT_BLOCKS = 2000
"""Blocks of restarted or removed endpoints forgotten in one sweep: less than a millisecond."""


@dataclass(slots=True, kw_only=True)
class ModelPlacing:
    """One model: its policy, and what its answers have taught."""

    plan: RoutingPlan
    policy: Policy
    bytes_per_token: float = FIRST_BYTES_PER_TOKEN
    output_tokens: float = FIRST_OUTPUT_TOKENS
    named_from_bytes: float = SHORT_PROMPT_BYTES
    endpoints: Sequence[Endpoint] | None = None
    """Those that the last request could choose from, mostly the same ones: their candidates are known already."""
    candidates: Sequence[Candidate] = ()
    fleet: Fleet | None = None
    braked_picks: int = 0
    sampled_picks: int = 0

    def learn(self, prompt_bytes: int, usage: TokenUsage) -> None:
        """`prompt_bytes`: 0 where the prompt was too short to tell, with the template's own tokens in it."""
        if prompt_bytes and usage.input_tokens:
            seen = prompt_bytes / usage.input_tokens
            self.bytes_per_token += LEARNING_STEP * (seen - self.bytes_per_token)
        if usage.output_tokens:
            self.output_tokens += LEARNING_STEP * (usage.output_tokens - self.output_tokens)

    def look_at_speeds(self, candidates: Iterable[Candidate]) -> None:
        """Find from which length on prompts are worth naming."""
        slopes_s = [candidate.factor * candidate.pool.ttft.slope for candidate in candidates]
        tokens = SHORT_PREFILL_S / max(slopes_s) if slopes_s else 0.0
        self.named_from_bytes = min(SHORT_PROMPT_BYTES, max(EDGES[0], tokens * self.bytes_per_token))


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
        self.left_out: Counter[tuple[str, str]] = Counter()
        """Endpoints that were no candidates of a choice, by model and filter."""

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
        model = placing.model
        if model.endpoints is not endpoints and model.endpoints != endpoints:
            self._look_at(model, endpoints)
        self._turn += 1
        placing.turn, placing.now_mono_s = self._turn, monotonic()
        candidate = placing.picked = pick(placing, model.candidates, model.policy, self.index, model.fleet)
        if placing.is_braked:
            model.braked_picks += 1
        if placing.is_sampled:
            model.sampled_picks += 1
        return self._endpoints[candidate.bit]

    def explain(self, request: InferenceRequest, endpoints: Sequence[Endpoint]) -> tuple[Placing, Decision]:
        """Choose as `pick` would, with every cost written down; the turn is not used up."""
        placing = self._placing_of(request, endpoints)
        model = placing.model
        if model.endpoints != endpoints:
            self._look_at(model, endpoints)
        placing.turn, placing.now_mono_s = self._turn + 1, monotonic()
        return placing, explain(placing, model.candidates, model.policy, self.index, model.fleet)

    def placed(self, request: InferenceRequest, endpoint: Endpoint) -> Placement | None:
        """The request is being sent to `endpoint`: hold its place there. None where there was no choice to make."""
        placing = request.placing
        candidate = self._candidates.get(endpoint)
        if not isinstance(placing, Placing) or candidate is None:
            return None
        is_as_picked = placing.picked is candidate
        placement = Placement(
            candidate=candidate,
            input_tokens=placing.input_tokens,
            expected_cached_tokens=placing.held_tokens if is_as_picked else 0.0,
            claimed_mono_s=placing.now_mono_s if is_as_picked else monotonic(),
            shelf=candidate.shelf,
            placer=self,
            request=request,
            placing=placing,
        )
        placing.picked = None
        candidate.take(placement, self.index, placing.chain, shows_first_token=request.is_stream)
        return placement

    def note_hits(self, placement: Placement, request: InferenceRequest, usage: TokenUsage) -> None:
        """An answer came, and told how much of its prompt was cached."""
        told, cached = usage.input_tokens, usage.cached_input_tokens
        if told is None or cached is None:
            return
        chain = placement.placing.chain
        names = chain.names if chain is not None else ()
        self.tallies.add(
            request.requested_model,
            request.tenant,
            names[min(FAMILY_BLOCKS, len(names)) - 1] if names else None,
            input_tokens=told,
            cached_tokens=cached,
            expected_tokens=placement.expected_cached_tokens,
        )
        endpoint = self._endpoints.get(placement.candidate.bit)
        if endpoint is not None:
            self.misses.note(request, endpoint, usage, placement.claimed_mono_s)

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
            if candidate.shelf.unnamed:
                self.index.age(candidate.shelf)
            measured = endpoint.load.fresh(now_mono_s)
            candidate.foreign = 0 if measured is None else endpoint.load.foreign
            model = self._models.get(endpoint.plan.model)
            if model is not None:
                kv_tokens = measured.kv_capacity_tokens if measured is not None else None
                candidate.shelf.capacity = (kv_tokens or model.plan.kv_tokens) * model.bytes_per_token
        for known in self._models.values():
            known.look_at_speeds(known.candidates)
        self.index.sweep(SWEPT_BLOCKS)

    def forget(self, endpoint: Endpoint) -> None:
        """Its KV cache is empty, as it says itself."""
        candidate = self._candidates.get(endpoint)
        if candidate is not None:
            self._restarted(endpoint, candidate)

    def hold_at_most(self, endpoint: Endpoint, tokens: int) -> None:
        """Its KV cache has evicted, and so many tokens can still be found there: the oldest of what the index believes
        to be more is forgotten. What was sent and is not computed yet is still to come."""
        candidate = self._candidates.get(endpoint)
        model = self._models.get(endpoint.plan.model)
        if candidate is not None and model is not None:
            coming = endpoint.load.prefill_tokens
            self.index.shrink_to(candidate.shelf, (tokens + coming) * model.bytes_per_token)

    def known(self) -> Iterator[tuple[Endpoint, Candidate, float]]:
        """Every endpoint that was ever chosen from, with the bytes that a token of its model's prompts has."""
        for endpoint, candidate in self._candidates.items():
            model = self._models.get(endpoint.plan.model)
            yield endpoint, candidate, FIRST_BYTES_PER_TOKEN if model is None else model.bytes_per_token

    def speeds(self) -> Iterator[tuple[str, PoolSpeed]]:
        """What every pool's answers have taught."""
        yield from self._speeds.items()

    def picks(self) -> Iterator[tuple[str, int, int]]:
        """Every model with its choices in which the brake was used, and those that looked at a sample."""
        for name, model in self._models.items():
            yield name, model.braked_picks, model.sampled_picks

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

    def _look_at(self, model: ModelPlacing, endpoints: Sequence[Endpoint]) -> None:
        """Others than before can be chosen from."""
        known = self._candidates
        model.candidates = [known.get(endpoint) or self._meet(endpoint, model) for endpoint in endpoints]
        model.endpoints, model.fleet = endpoints, fleet_of(model.candidates)

    def _placing_of(self, request: InferenceRequest, endpoints: Sequence[Endpoint]) -> Placing:
        placing = request.placing
        if isinstance(placing, Placing):
            return placing
        model = self._models[request.requested_model]
        policy, chain = model.policy, None
        if policy.uses_prefixes and not 0 < request.prompt_bytes < model.named_from_bytes:
            chain = self._chain_of(request, endpoints)
        input_tokens = float(request.estimated_input_tokens)
        if not input_tokens:
            length = chain.length if chain is not None else len(request.body)
            input_tokens = max(1.0, length / model.bytes_per_token)
        output_tokens, limit_tokens = model.output_tokens, request.output_limit_tokens
        placing = request.placing = Placing(
            model=model,
            chain=chain,
            input_tokens=input_tokens,
            output_tokens=output_tokens if limit_tokens is None or limit_tokens > output_tokens else limit_tokens,
            request_class=request.request_class,
            session=_session_of(request, model.plan.session_field) if policy.has_sessions else None,
        )
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
    except UNDECODABLE:
        return None
    return f"{request.tenant}/{session}" if isinstance(session, str) else None
