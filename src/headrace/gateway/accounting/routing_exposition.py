"""Metrics of routing, of the engines' caches and of pools as families for Prometheus. Counterpart: `exposition.py`.

Labels are declared pools, models and endpoints, and closed sets of words: nothing a caller can invent (PAINS 14).
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.domain.routing_figures import CacheFigures, PoolLoad, PoolPrediction, RoutingFigures
from headrace.telemetry import routing_metrics as metrics
from headrace.telemetry.spec import MetricSpec


class RoutingCollector(Collector):
    """Makes metric families of what the three samples give when scraped."""

    def __init__(
        self,
        routing: Callable[[], RoutingFigures],
        caches: Callable[[], Iterable[CacheFigures]],
        pools: Callable[[], Iterable[PoolLoad]],
    ) -> None:
        self._routing = routing
        self._caches = caches
        self._pools = pools

    def collect(self) -> Iterable[Metric]:
        yield from _routing(self._routing())
        yield from _caches(self._caches())
        yield from _pools(self._pools())


def _routing(figures: RoutingFigures) -> Iterator[Metric]:
    picks, blocks, tokens = _counter(metrics.PICKS), _gauge(metrics.INDEX_BLOCKS), _gauge(metrics.INDEX_TOKENS)
    for one in figures.endpoints:
        picks.add_metric([one.endpoint, "prefix"], one.by_prefix)
        picks.add_metric([one.endpoint, "load"], one.by_load)
        blocks.add_metric([one.endpoint], one.index_blocks)
        tokens.add_metric([one.endpoint], one.index_tokens)
    predictions = HistogramMetricFamily(
        metrics.PREDICTION.name, metrics.PREDICTION.description, labels=metrics.PREDICTION.labels
    )
    for pool in figures.pools:
        predictions.add_metric([pool.pool], _cumulative(pool), sum_value=pool.total)
    left_out, braked, sampled = (_counter(spec) for spec in (metrics.LEFT_OUT, metrics.BRAKED, metrics.SAMPLED))
    prefixes = _counter(metrics.PREFIX_TOKENS)
    for model in figures.models:
        for why, count in model.left_out.items():
            left_out.add_metric([model.model, why], count)
        braked.add_metric([model.model], model.braked)
        sampled.add_metric([model.model], model.sampled)
        prefixes.add_metric([model.model, "input"], model.told_tokens)
        prefixes.add_metric([model.model, "expected"], model.expected_tokens)
        prefixes.add_metric([model.model, "cached"], model.cached_tokens)
    choices = _counter(metrics.CHOICES)
    for (name, model), count in figures.choices.items():
        choices.add_metric([name, model], count)
    yield from (picks, blocks, tokens, predictions, left_out, braked, sampled, prefixes, choices)


def _caches(figures: Iterable[CacheFigures]) -> Iterator[Metric]:
    stored, removed = _counter(metrics.CACHE_STORED), _counter(metrics.CACHE_REMOVED)
    emptied, held = _counter(metrics.CACHE_EMPTIED), _gauge(metrics.CACHE_HELD)
    messages = _counter(metrics.EVENT_MESSAGES)
    for one in figures:
        stored.add_metric([one.endpoint], one.stored_blocks)
        removed.add_metric([one.endpoint], one.removed_blocks)
        emptied.add_metric([one.endpoint, "cleared"], one.clears)
        emptied.add_metric([one.endpoint, "restarted"], one.restarts)
        for tier, tokens in one.held_tokens.items():
            held.add_metric([one.endpoint, tier], tokens)
        messages.add_metric([one.endpoint, "read"], one.messages)
        messages.add_metric([one.endpoint, "replayed"], one.replayed)
        messages.add_metric([one.endpoint, "missed"], one.missed)
        messages.add_metric([one.endpoint, "unreadable"], one.unreadable)
    yield from (stored, removed, emptied, held, messages)


def _pools(loads: Iterable[PoolLoad]) -> Iterator[Metric]:
    running, waiting, kv = _gauge(metrics.POOL_RUNNING), _gauge(metrics.POOL_WAITING), _gauge(metrics.POOL_KV)
    prefill, held = _gauge(metrics.POOL_PREFILL), _gauge(metrics.POOL_HELD)
    engines = _gauge(metrics.POOL_ENGINES)
    for one in loads:
        labels = [one.pool, one.role]
        engines.add_metric(labels, one.engines)
        prefill.add_metric(labels, one.prefill_tokens)
        held.add_metric(labels, one.held_tokens)
        if one.engines:
            running.add_metric(labels, one.running)
            waiting.add_metric(labels, one.waiting)
        if one.kv_utilization_ratio is not None:
            kv.add_metric(labels, one.kv_utilization_ratio)
    yield from (running, waiting, kv, prefill, held, engines)


def _cumulative(pool: PoolPrediction) -> list[tuple[str, float]]:
    pairs: list[tuple[str, float]] = []
    count = 0
    for bound, here in zip((*map(str, pool.bounds), "+Inf"), pool.counts, strict=True):
        count += here
        pairs.append((bound, float(count)))
    return pairs


def _counter(spec: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, labels=spec.labels)


def _gauge(spec: MetricSpec) -> GaugeMetricFamily:
    return GaugeMetricFamily(spec.name, spec.description, labels=spec.labels)
