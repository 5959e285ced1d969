"""Metrics of routing, of the engines' caches and of pools."""

from dataclasses import replace

from headrace.domain.routing_figures import (
    CacheFigures,
    EndpointPicks,
    ModelRouting,
    PoolLoad,
    PoolPrediction,
    RoutingFigures,
)
from headrace.gateway.accounting.routing_exposition import RoutingCollector
from headrace.telemetry.routing_metrics import PREDICTION_BOUNDS, ROUTING_METRICS

ROUTING = RoutingFigures(
    endpoints=(EndpointPicks(endpoint="p/0", by_prefix=3, by_load=4, index_blocks=5, index_tokens=600),),
    pools=(PoolPrediction(pool="p", bounds=PREDICTION_BOUNDS, counts=(1,) * (len(PREDICTION_BOUNDS) + 1), total=20.0),),
    models=(
        ModelRouting(
            model="m", left_out={"tried": 2}, braked=1, sampled=2, told_tokens=90, expected_tokens=60, cached_tokens=50
        ),
    ),
    choices={("auto-chat", "m"): 6},
)
CACHE = CacheFigures(
    endpoint="p/0", stored_blocks=9, removed_blocks=4, clears=1, restarts=2, held_tokens={"device": 80}, messages=7,
    missed=0, replayed=3, unreadable=0,
)  # fmt: skip
POOL = PoolLoad(
    pool="p", role="prefill", engines=2, running=3, waiting=1, kv_utilization_ratio=0.5, prefill_tokens=100,
    held_tokens=200,
)  # fmt: skip


def samples(collector: RoutingCollector) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def collected(cache: CacheFigures = CACHE, pool: PoolLoad = POOL) -> dict[tuple[str, ...], float]:
    return samples(RoutingCollector(lambda: ROUTING, lambda: [cache], lambda: [pool]))


def test_every_metric_of_routing_is_exposed_with_its_labels() -> None:
    """What the catalogue promises is what a scrape gives."""
    families = list(RoutingCollector(lambda: ROUTING, lambda: [CACHE], lambda: [POOL]).collect())
    assert {family.name for family in families} == {spec.name.removesuffix("_total") for spec in ROUTING_METRICS}
    for family in families:
        spec = next(each for each in ROUTING_METRICS if each.name.removesuffix("_total") == family.name)
        assert family.samples, family.name
        assert set(family.samples[0].labels) - {"le"} == set(spec.labels)


def test_picks_are_told_apart_by_their_reason() -> None:
    """What was sent to a cached prefix, and what went by load alone."""
    found = collected()
    assert found["headrace_routing_picks_total", "p/0", "prefix"] == 3
    assert found["headrace_routing_picks_total", "p/0", "load"] == 4
    assert found["headrace_kv_events_emptied_total", "p/0", "restarted"] == 2


def test_a_prediction_counts_up_to_all() -> None:
    """Buckets add up, as Prometheus wants them."""
    found = collected()
    bucket = "headrace_routing_ttft_prediction_ratio_bucket"
    assert found[bucket, "p", "1.1"] == 7
    assert found[bucket, "p", "+Inf"] == len(PREDICTION_BOUNDS) + 1
    assert found["headrace_routing_ttft_prediction_ratio_sum", "p"] == 20


def test_what_is_not_known_is_absent() -> None:
    """An engine that misses events, or tells no load, is not one with an empty cache and nothing to do."""
    names = {
        name
        for name, *_ in collected(replace(CACHE, held_tokens={}), replace(POOL, engines=0, kv_utilization_ratio=None))
    }
    assert not names & {
        "headrace_kv_events_held_tokens",
        "headrace_pool_running_requests",
        "headrace_pool_waiting_requests",
        "headrace_pool_kv_utilization_ratio",
    }
    assert "headrace_pool_prefill_tokens" in names
