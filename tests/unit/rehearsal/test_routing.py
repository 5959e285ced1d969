"""Routing in virtual time: the gateway's own decision over simulated engines."""

from dataclasses import replace
from functools import cache
from random import Random

from headrace.declaration.model import Model
from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.hardware import Hardware, model_of
from headrace.gateway.routing.core.decision import Policy, Weighted
from headrace.gateway.routing.core.scorers import LeastLoadedScorer, RoundRobinScorer
from headrace.rehearsal.routing import RoutingOutcome, declared_policy, rehearse, sum_up
from headrace.rehearsal.routing_trace import TRACE_BLOCK_TOKENS, TracedRequest, at_rate
from headrace.simulation.model import EngineModel

REPLICAS = 8
ROUND_ROBIN = Policy(
    scorers=(Weighted(scorer=RoundRobinScorer(), weight=1.0, offline_weight=1.0),),
    brake_factor=None,
    uses_prefixes=False,
)
LEAST_LOADED = replace(ROUND_ROBIN, scorers=(Weighted(scorer=LeastLoadedScorer(), weight=1.0, offline_weight=1.0),))
OURS = declared_policy(Model().routing)


@cache
def engine() -> EngineModel:
    model = model_of(Hardware(dialect=DialectKind.VLLM, gpu="h100", model="llama-3.1-8b"))
    blocks = model.kv.total_blocks * model.kv.block_tokens // TRACE_BLOCK_TOKENS
    return replace(model, kv=replace(model.kv, total_blocks=blocks, block_tokens=TRACE_BLOCK_TOKENS))


def conversations(count: int, seed: int) -> list[TracedRequest]:
    """Conversations of some turns, each turn continuing the last; lengths and pauses by chance."""
    chance, block, found = Random(seed), 1000, list[TracedRequest]()
    for _ in range(count):
        at_s, blocks = chance.uniform(0, 400), [1, 2]
        for _turn in range(chance.randint(1, 8)):
            grown = max(1, int(chance.paretovariate(1.2)))
            blocks += range(block, block + min(grown, 40))
            block += min(grown, 40)
            tokens = len(blocks) * TRACE_BLOCK_TOKENS + chance.randint(1, TRACE_BLOCK_TOKENS - 1)
            output = chance.randint(20, 500)
            found.append(TracedRequest(at_s=at_s, input_tokens=tokens, output_tokens=output, blocks=tuple(blocks)))
            at_s += chance.expovariate(1 / 25)
    return sorted(found, key=lambda request: request.at_s)


def run(trace: list[TracedRequest], policy: Policy, *, warm_up_s: float = 0.0) -> RoutingOutcome:
    records = list(rehearse(engine(), REPLICAS, trace, policy))
    assert len(records) == len(trace)
    assert all(record.refusal is None for record in records)
    seen = [record for record in records if record.arrived_at_s >= warm_up_s]
    return sum_up(seen, REPLICAS, ttft_slo_s=1.0, tpot_slo_s=0.05)


def test_conversations_find_their_cached_prompts() -> None:
    """On chat traffic under high load, prompts are cached far more often and answered sooner than by round robin or
    least loaded."""
    trace = at_rate(conversations(300, 1), 24.0)
    ours, turns, least = (run(trace, policy) for policy in (OURS, ROUND_ROBIN, LEAST_LOADED))
    assert ours.prefix_hit_ratio > 1.5 * max(turns.prefix_hit_ratio, least.prefix_hit_ratio)
    assert ours.ttft_p50_s < min(turns.ttft_p50_s, least.ttft_p50_s)
    assert ours.ttft_p99_s < min(turns.ttft_p99_s, least.ttft_p99_s)
    assert ours.slo_attainment_ratio >= max(turns.slo_attainment_ratio, least.slo_attainment_ratio)


def test_a_hot_prefix_spreads() -> None:
    """Eight thousand tokens that every request begins with: no replica gets more than one and a half times the mean,
    and, once each replica has them, the slowest first tokens come no later than by round robin (within 5 %)."""
    chance, at_s, trace = Random(5), 0.0, list[TracedRequest]()
    for _ in range(2400):
        at_s += chance.expovariate(60.0)
        tokens, output = 16 * TRACE_BLOCK_TOKENS + chance.randint(20, 480), chance.randint(50, 400)
        trace.append(TracedRequest(at_s=at_s, input_tokens=tokens, output_tokens=output, blocks=tuple(range(1, 17))))
    ours, turns = run(trace, OURS, warm_up_s=5.0), run(trace, ROUND_ROBIN, warm_up_s=5.0)
    assert ours.load_spread <= 1.5
    assert ours.ttft_p99_s <= 1.05 * turns.ttft_p99_s


def test_without_anything_to_share_it_is_no_worse_than_least_loaded() -> None:
    """Prompts of their own, as code completion has them: first tokens as soon as with the least loaded."""
    chance = Random(9)
    trace = [
        TracedRequest(
            at_s=number / 50 + chance.random() / 50,
            input_tokens=chance.randint(100, 6000),
            output_tokens=chance.randint(1, 60),
            blocks=tuple(range(number * 20, number * 20 + 11)),
        )
        for number in range(1500)
    ]
    trace = [replace(request, blocks=request.blocks[: request.input_tokens // TRACE_BLOCK_TOKENS]) for request in trace]
    ours, least = run(trace, OURS), run(trace, LEAST_LOADED)
    assert ours.ttft_p50_s <= 1.05 * least.ttft_p50_s
    assert ours.ttft_p99_s <= 1.05 * least.ttft_p99_s


def test_a_run_repeats_itself() -> None:
    """The same trace and policy give the same result to the last digit."""
    trace = at_rate(conversations(40, 3), 16.0)
    assert run(trace, OURS) == run(trace, OURS)
