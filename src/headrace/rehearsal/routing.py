"""Rehearses routing: the gateway's own decision over simulated engines in virtual time, on a trace.

What the router sees is what the gateway sees: when it sent what, first tokens, ends, usage. Never the engines' insides.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headrace.declaration.routing_plan import compile_model_routing
from headrace.declaration.routing_section import Routing
from headrace.domain.quantiles import nearest_rank
from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.candidate import Candidate, Claim, PoolSpeed
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.decision import Ask, Fleet, Policy, fleet_of, pick
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.plugins import make_policy
from headrace.rehearsal.routing_trace import TRACE_BLOCK_TOKENS, TracedRequest
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.model import EngineModel
from headrace.simulation.request import SimulatedRequest
from headrace.simulation.virtual_time import Arrival, RequestRecord, VirtualFleet

MAX_BLOCKS = 1_000_000
EXPECTED_OUTPUT_TOKENS = 300.0
"""What a request is taken to generate: the router does not know. Chosen, near the mean of chat traces."""


@dataclass(slots=True, kw_only=True)
class FleetOfCandidates:
    """The router's side: candidates, index, claims, and what it has yet to hear."""

    policy: Policy
    kv_tokens: int
    count: int
    index: PrefixIndex = field(default_factory=PrefixIndex)
    candidates: list[Candidate] = field(init=False)
    request_class: RequestClass = RequestClass.INTERACTIVE
    _claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    _heard: list[tuple[float, int, bool, RequestRecord]] = field(
        default_factory=list[tuple[float, int, bool, RequestRecord]]
    )
    """First tokens and ends by their moment: the fleet tells of them when the step that brings them begins."""
    _places: dict[int, int] = field(init=False)
    _fleet: Fleet = field(init=False)
    _turn: int = 0
    _told: int = 0

    def __post_init__(self) -> None:
        speed = PoolSpeed()
        self.candidates = [
            Candidate(f"engine/{number}", self.index.new_shelf(capacity=self.kv_tokens, max_blocks=MAX_BLOCKS), speed)
            for number in range(self.count)
        ]
        self._fleet = fleet_of(self.candidates)
        self._places = {candidate.bit: place for place, candidate in enumerate(self.candidates)}

    def choose(self, now_s: float, request: SimulatedRequest) -> int:
        """Pick an engine by what is known up to now."""
        self._catch_up(now_s)
        self._turn += 1
        blocks = request.prompt_blocks or ()
        chain = PromptChain(
            names=[block + 1 for block in blocks],
            ends=range(TRACE_BLOCK_TOKENS, TRACE_BLOCK_TOKENS * (len(blocks) + 1), TRACE_BLOCK_TOKENS),
            length=request.input_tokens,
        )
        ask = Ask(
            input_tokens=float(request.input_tokens),
            output_tokens=EXPECTED_OUTPUT_TOKENS,
            request_class=self.request_class,
            chain=chain,
            turn=self._turn,
            now_mono_s=now_s,
        )
        picked = pick(ask, self.candidates, self.policy, self.index, self._fleet)
        self._claims[request.request_id] = picked.claim(
            self.index,
            chain,
            input_tokens=float(request.input_tokens),
            held_tokens=ask.held_tokens,
            now_mono_s=now_s,
        )
        return self._places[picked.bit]

    def first_token_comes(self, record: RequestRecord) -> None:
        assert record.first_token_at_s is not None
        self._tell(record.first_token_at_s, record, is_end=False)

    def ended(self, record: RequestRecord) -> None:
        self._tell(record.arrived_at_s if record.ended_at_s is None else record.ended_at_s, record, is_end=True)

    def _tell(self, at_s: float, record: RequestRecord, *, is_end: bool) -> None:
        self._told += 1
        heapq.heappush(self._heard, (at_s, self._told, is_end, record))

    def _catch_up(self, now_s: float) -> None:
        heard = self._heard
        while heard and heard[0][0] <= now_s:
            at_s, _told, is_end, record = heapq.heappop(heard)
            claim = self._claims[record.request_id]
            if not is_end:
                claim.candidate.first_token(claim, at_s)
                continue
            del self._claims[record.request_id]
            claim.candidate.end(
                claim,
                self.index,
                at_s,
                is_answered=record.refusal is None,
                input_tokens=record.input_tokens,
                cached_tokens=record.cached_tokens,
                output_tokens=record.output_tokens,
            )


def declared_policy(routing: Routing) -> Policy:
    """The policy that the gateway makes of a model's `routing` section."""
    return make_policy(compile_model_routing(routing))


def rehearse(
    model: EngineModel, replicas: int, trace: Iterable[TracedRequest], policy: Policy
) -> Iterator[RequestRecord]:
    """Yield what became of each request, in the order of their ends."""
    router = FleetOfCandidates(policy=policy, kv_tokens=model.kv.total_blocks * model.kv.block_tokens, count=replicas)
    engines = [SimulatedEngine(model) for _ in range(replicas)]
    fleet = VirtualFleet(engines, router.choose, on_first=router.first_token_comes)
    for record in fleet.run(_arrivals(trace)):
        router.ended(record)
        yield record


def _arrivals(trace: Iterable[TracedRequest]) -> Iterator[Arrival]:
    for number, request in enumerate(trace):
        yield (
            request.at_s,
            SimulatedRequest(
                request_id=str(number),
                prompt_tokens=range(request.input_tokens),
                output_tokens=request.output_tokens,
                prompt_blocks=request.blocks,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOutcome:
    """One run, summed up. Observer: beside the engines; no network, no gateway."""

    requests: int
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    prefix_hit_ratio: float
    slo_attainment_ratio: float
    goodput_per_s: float
    load_spread: float
    """Largest share of requests of one replica, as a multiple of the mean."""

    def __str__(self) -> str:
        return (
            f"ttft p50 {self.ttft_p50_s:7.3f} p99 {self.ttft_p99_s:8.3f}  tpot p50 {self.tpot_p50_s * 1e3:6.1f} p99 "
            f"{self.tpot_p99_s * 1e3:7.1f} ms  hit {self.prefix_hit_ratio:.3f}  slo {self.slo_attainment_ratio:.3f}  "
            f"goodput {self.goodput_per_s:.3f}/s  spread {self.load_spread:.2f}"
        )


def sum_up(records: Sequence[RequestRecord], replicas: int, *, ttft_slo_s: float, tpot_slo_s: float) -> RoutingOutcome:
    """Sum up a run against objectives."""
    ttfts = sorted(record.ttft_s for record in records if record.ttft_s is not None)
    tpots = sorted(record.tpot_s for record in records if record.tpot_s is not None)
    counts = [0] * replicas
    for record in records:
        counts[record.engine] += 1
    good = sum(
        1
        for record in records
        if record.ttft_s is not None and record.ttft_s <= ttft_slo_s and (record.tpot_s or 0.0) <= tpot_slo_s
    )
    span_s = max(record.ended_at_s or 0.0 for record in records) - min(record.arrived_at_s for record in records)
    return RoutingOutcome(
        requests=len(records),
        ttft_p50_s=_percentile_s(ttfts, 0.5),
        ttft_p99_s=_percentile_s(ttfts, 0.99),
        tpot_p50_s=_percentile_s(tpots, 0.5),
        tpot_p99_s=_percentile_s(tpots, 0.99),
        prefix_hit_ratio=sum(record.cached_tokens for record in records)
        / max(1, sum(record.input_tokens for record in records)),
        slo_attainment_ratio=good / len(records),
        goodput_per_s=good / span_s,
        load_spread=max(counts) * replicas / len(records),
    )


def _percentile_s(ordered: Sequence[float], share: float) -> float:
    """0.0 of none: a run without a first token is none to compare."""
    return nearest_rank(ordered, share) or 0.0
