"""What neighbours do to each other: the same workload alone, through the gateway's queue, and first come first served.

Used by the tests and by `python -m benchmarks neighbours`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from headrace.declaration.queue_plan import CLASS_DEFAULTS, QueuePlan
from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.bands import BANDS, BandRules
from headrace.gateway.admission.core.lane import LaneRules
from headrace.gateway.admission.core.room import DeclaredRoom
from headrace.rehearsal.virtual_pool import Outcome, VirtualPool
from headrace.rehearsal.workload import Workload, iter_arrivals
from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.model import EngineModel, KvModel, SchedulingBounds

MAX_SEQUENCES = 64
BATCHED_TOKENS = 2048
ENGINE_QUEUE = 2048
"""Requests that may wait in the engine of the first-come-first-served run; what comes beyond is refused."""


def large_engine() -> EngineModel:
    """An engine of the size of a large model on several GPUs: 38 ms a full decode step, 40 microseconds a prompt token.

    Without prefix cache, so that nothing but the order makes a difference.
    """
    return EngineModel(
        clock=LinearClock(fixed_s=0.025, prefill_token_s=40e-6, decode_token_s=200e-6, kv_token_s=2e-8),
        bounds=SchedulingBounds(
            max_sequences=MAX_SEQUENCES,
            max_batched_tokens=BATCHED_TOKENS,
            context_tokens=16384,
            max_queued_requests=ENGINE_QUEUE,
        ),
        kv=KvModel(total_blocks=20000, block_tokens=16, is_prefix_cached=False),
    )


def default_rules(**changes: int | float) -> LaneRules:
    """The rules of a pool that declares nothing about its queue, but for `changes` to its bounds."""
    plan = QueuePlan()
    bounds: dict[str, int | float] = {
        "tenant_requests": plan.tenant_requests,
        "pool_requests": plan.pool_requests,
        "headroom_ratio": plan.headroom_ratio,
        **changes,
    }
    return LaneRules(
        bands={each: _band(each) for each in BANDS},
        longest_wait_s={each: CLASS_DEFAULTS[each].longest_wait_s for each in BANDS},
        tenant_requests=int(bounds["tenant_requests"]),
        tenant_bytes=plan.tenant_bytes,
        pool_requests=int(bounds["pool_requests"]),
        pool_bytes=plan.pool_bytes,
        headroom_ratio=bounds["headroom_ratio"],
    )


def _band(request_class: RequestClass) -> BandRules:
    plan = CLASS_DEFAULTS[request_class]
    return BandRules(reserved_ratio=plan.reserved_ratio, starvation_s=plan.starvation_s)


def run(workload: Workload, rules: LaneRules | None, *, engines: int = 1) -> Outcome:
    """Run a workload on large engines, through a queue with `rules` or, where None, straight to the engines."""
    room = DeclaredRoom(sequences=MAX_SEQUENCES, prefill_tokens=2 * BATCHED_TOKENS)
    pool = VirtualPool([large_engine()] * engines, rules, room)
    return pool.run(iter_arrivals(workload), until_s=workload.duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """What one tenant saw of a run. Units: seconds, tokens."""

    requests: int
    answered: int
    """With a first token."""
    ttft_p50_s: float | None
    ttft_p99_s: float | None


def view(outcome: Outcome, tenant: str) -> TenantView:
    """Look at one tenant's requests; the last ones may still be running."""
    own = [served for served in outcome.requests if served.arrival.load.tenant == tenant]
    ttfts = sorted(served.ttft_s for served in own if served.ttft_s is not None)
    return TenantView(
        requests=len(own),
        answered=len(ttfts),
        ttft_p50_s=ttfts[len(ttfts) // 2] if ttfts else None,
        ttft_p99_s=ttfts[int(len(ttfts) * 0.99)] if ttfts else None,
    )


def tokens_per_s(outcome: Outcome) -> float:
    """Input and output tokens of all tenants, per virtual second."""
    return sum(outcome.served_tokens.values()) / outcome.ended_at_s


def step_s(outcome: Outcome) -> float:
    """Median duration of a step of the first engine."""
    return median(outcome.step_s)


def shares(outcome: Outcome) -> Mapping[str, float]:
    """Each tenant's share of all tokens."""
    total = sum(outcome.served_tokens.values())
    return {tenant: tokens / total for tenant, tokens in outcome.served_tokens.items()}
