"""Fifth row: what prefix caches save, why not more, and how endpoints are chosen."""

from headrace.fleet.observe.dashboard.panel import Color, Panel, Query, Row, Threshold, Unit
from headrace.fleet.observe.dashboard.promql import (
    largest,
    largest_per_minute,
    largest_per_second,
    per_minute,
    per_second,
    quantile,
    ratio,
    summed,
)
from headrace.telemetry import catalogue, routing_metrics

TOLD = per_second(routing_metrics.PREFIX_TOKENS, 'kind="input"', by=("model",))

ROW = Row(
    title="Cache and routing",
    panels=(
        Panel(
            title="Cached share of input tokens",
            description="Input tokens that engines took out of their caches. Computing them anew costs time to first "
            "token and GPU time; a fall after a release of a client: the panel of misses.",
            queries=(
                Query(
                    ratio(
                        per_second(catalogue.TOKENS, 'kind="cached_input"', by=("model",)),
                        per_second(catalogue.TOKENS, 'kind="input"', by=("model",)),
                    ),
                    "{{model}}",
                ),
            ),
            unit=Unit.SHARE, top=1,
        ),
        Panel(
            title="Expected and found in caches",
            description="Of answers that told what was cached: the share that routing believed to be there, and the "
            "share that was. Far apart: engines evict more than the index knows, or others use them too.",
            queries=(
                Query(
                    ratio(per_second(routing_metrics.PREFIX_TOKENS, 'kind="expected"', by=("model",)), TOLD),
                    "{{model}} expected",
                ),
                Query(
                    ratio(per_second(routing_metrics.PREFIX_TOKENS, 'kind="cached"', by=("model",)), TOLD),
                    "{{model}} found",
                ),
            ),
            unit=Unit.SHARE, top=1,
        ),
        Panel(
            title="Cache misses by cause",
            description="Requests of the examined sample that could have shared a cached beginning and did not. What "
            "each cause is and who can mend it: docs/cache-misses.md, headrace cache misses.",
            queries=(Query(per_minute(catalogue.CACHE_MISSES, by=("cause",)), "{{cause}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Tokens computed anew, by cause",
            description="What these misses cost; estimated, of the same sample.",
            queries=(Query(per_second(catalogue.CACHE_MISS_TOKENS, by=("cause",)), "{{cause}}"),),
            unit=Unit.TOKENS_PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="Picks by reason",
            description="Where there was a choice: prefix, since the prompt's beginning was believed to be cached "
            "there; load otherwise.",
            queries=(
                Query(per_second(routing_metrics.PICKS, by=("endpoint", "reason")), "{{endpoint}} {{reason}}"),
            ),
            unit=Unit.PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="TTFT as a multiple of its prediction",
            description="1 is right, 2 twice as late as predicted when the endpoint was picked. The alert "
            "HeadracePredictionsOff fires where the median stays over the line.",
            queries=(
                Query(quantile(0.5, routing_metrics.PREDICTION, by=("pool",)), "{{pool}} p50"),
                Query(quantile(0.95, routing_metrics.PREDICTION, by=("pool",)), "{{pool}} p95"),
            ),
            unit=Unit.COUNT, thresholds=(Threshold(3, Color.ORANGE),),
        ),
        Panel(
            title="Endpoints left out, by filter",
            description="Endpoints that were no candidates where there was a choice, by the first filter that left "
            "them out; braked: it had far more in flight than the mean. headrace route explains one request.",
            queries=(
                Query(per_minute(routing_metrics.LEFT_OUT, by=("model", "filter")), "{{model}} {{filter}}"),
                Query(per_minute(routing_metrics.BRAKED, by=("model",)), "{{model}} braked"),
            ),
            unit=Unit.PER_MINUTE,
        ),
        Panel(
            title="Model chosen for a name",
            description="Of names that stand for several models (auto_models). No data: none is declared.",
            queries=(Query(per_second(routing_metrics.CHOICES, by=("name", "model")), "{{name}}: {{model}}"),),
            unit=Unit.REQUESTS_PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="Tokens in caches",
            description="Believed by the routing index, and held as the engines' events say (pools.*.telemetry."
            "kv_events).",
            queries=(
                Query(summed(routing_metrics.INDEX_TOKENS, by=("endpoint",)), "{{endpoint}} believed"),
                Query(largest(routing_metrics.CACHE_HELD, by=("endpoint", "tier")), "{{endpoint}} {{tier}}"),
            ),
            unit=Unit.TOKENS,
        ),
        Panel(
            title="Blocks stored and evicted",
            description="By the engines' events: evictions as fast as stores mean that the cache is full and turns "
            "over.",
            queries=(
                Query(largest_per_second(routing_metrics.CACHE_STORED, by=("endpoint",)), "{{endpoint}} stored"),
                Query(largest_per_second(routing_metrics.CACHE_REMOVED, by=("endpoint",)), "{{endpoint}} evicted"),
            ),
            unit=Unit.PER_SECOND, width=12,
        ),
        Panel(
            title="Caches emptied, events lost",
            description="Emptied: the engine forgot all at once (cleared, restarted). Missed or unreadable: what it "
            "holds is not known until it is asked again.",
            queries=(
                Query(
                    largest_per_minute(routing_metrics.CACHE_EMPTIED, by=("endpoint", "cause")),
                    "{{endpoint}} {{cause}}",
                ),
                Query(
                    largest_per_minute(
                        routing_metrics.EVENT_MESSAGES, 'result=~"missed|unreadable"', by=("endpoint", "result")
                    ),
                    "{{endpoint}} {{result}}",
                ),
            ),
            unit=Unit.PER_MINUTE, width=12,
        ),
    ),
    is_open=False,
)  # fmt: skip
