"""Second row: how long callers wait, and for what."""

from headrace.fleet.observe.dashboard.panel import Panel, Query, Row, Unit
from headrace.fleet.observe.dashboard.promql import quantile
from headrace.telemetry import catalogue
from headrace.telemetry.spec import MetricSpec

PERCENTILES = (0.5, 0.95, 0.99)


def percentiles(spec: MetricSpec, *labels: str) -> tuple[Query, ...]:
    """Each percentile of a histogram for each combination of `labels`."""
    named = " ".join(f"{{{{{label}}}}}" for label in labels)
    return tuple(Query(quantile(share, spec, by=labels), f"{named} p{share * 100:g}") for share in PERCENTILES)


def _latency(title: str, spec: MetricSpec, description: str) -> Panel:
    return Panel(
        title=title, description=f"{description} Estimated from buckets: docs/metrics.md has their bounds.",
        queries=percentiles(spec, "model"), unit=Unit.SECONDS, width=12, has_figures=True,
    )  # fmt: skip


ROW = Row(
    title="Latency (observer: gateway)",
    panels=(
        _latency(
            "Time to first token (TTFT)", catalogue.TTFT,
            "Request complete to first output event; the wait in the gateway's queue is in it.",
        ),
        _latency(
            "Queue time", catalogue.QUEUE,
            "Request complete to dispatch to an engine. Where it makes up most of TTFT, room is short: the row Load; "
            "where it does not, the engines are slow.",
        ),
        _latency(
            "Inter-token latency (ITL)", catalogue.ITL,
            "Gaps between output events, of all streams together; events that arrive together have gap 0.",
        ),
        _latency(
            "Time per output token (TPOT)", catalogue.TPOT,
            "(E2E - TTFT) / (output tokens - 1) of each completed stream.",
        ),
        _latency(
            "End to end (E2E)", catalogue.E2E,
            "Request complete to last byte, completed requests. It grows with the length of answers too.",
        ),
        _latency(
            "Gaps of resumed streams", catalogue.RESUME_GAP,
            "What callers waited where a stream went on at another endpoint: last output event before the break to "
            "the first after it. No data: none was resumed.",
        ),
    ),
    is_open=True,
)  # fmt: skip
