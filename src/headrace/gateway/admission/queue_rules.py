"""The plan's words about queues as the core's: rules of a model's queue, and the room of an endpoint."""

from collections.abc import Sequence

from headrace.declaration.queue_plan import QueuePlan
from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.bands import BANDS, BandRules
from headrace.gateway.admission.core.lane import LaneRules
from headrace.gateway.admission.core.room import DeclaredRoom


def lane_rules(plans: Sequence[QueuePlan]) -> LaneRules:
    """Return the rules of the queue of one model's pools: bounds add up, of the rest the most patient holds."""
    first = plans[0]
    return LaneRules(
        bands={each: _band_rules(plans, each) for each in BANDS},
        longest_wait_s={each: max(plan.classes[each].longest_wait_s for plan in plans) for each in BANDS},
        tenant_requests=sum(plan.tenant_requests for plan in plans),
        tenant_bytes=sum(plan.tenant_bytes for plan in plans),
        pool_requests=sum(plan.pool_requests for plan in plans),
        pool_bytes=sum(plan.pool_bytes for plan in plans),
        headroom_ratio=max(plan.headroom_ratio for plan in plans),
        deadline_first=first.is_deadline_first,
    )


def _band_rules(plans: Sequence[QueuePlan], request_class: RequestClass) -> BandRules:
    classes = [plan.classes[request_class] for plan in plans]
    return BandRules(
        reserved_ratio=max(each.reserved_ratio for each in classes),
        starvation_s=max(each.starvation_s for each in classes),
    )


def declared_room(plan: QueuePlan, workers: int) -> DeclaredRoom:
    return DeclaredRoom(
        sequences=plan.sequences, prefill_tokens=plan.prefill_tokens, held_tokens=plan.held_tokens, workers=workers
    )
