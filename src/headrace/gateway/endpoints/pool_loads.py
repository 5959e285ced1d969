"""Loads of whole pools, from what their engines say of themselves: sums for those who size prefill and decode."""

from time import monotonic

from headrace.domain.routing_figures import PoolLoad
from headrace.gateway.endpoints.directory import EndpointDirectory


def pool_loads(directory: EndpointDirectory) -> list[PoolLoad]:
    """Return one row per pool that has endpoints."""
    now_mono_s = monotonic()
    rows: list[PoolLoad] = []
    for plan in directory.plans():
        endpoints = directory.of_pool(plan.name)
        found = [measured for each in endpoints if (measured := each.load.fresh(now_mono_s)) is not None]
        ratios = [one.kv_utilization_ratio for one in found if one.kv_utilization_ratio is not None]
        rows.append(
            PoolLoad(
                pool=plan.name,
                role="both" if plan.handover is None else plan.handover.role,
                engines=len(found),
                running=sum(one.running or 0.0 for one in found),
                waiting=sum(one.waiting or 0.0 for one in found),
                kv_utilization_ratio=sum(ratios) / len(ratios) if ratios else None,
                prefill_tokens=sum(each.load.prefill_tokens for each in endpoints),
                held_tokens=sum(each.load.held_tokens for each in endpoints),
            )
        )
    return rows
