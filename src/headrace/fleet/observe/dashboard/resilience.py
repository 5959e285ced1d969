"""Seventh row: what headrace does so that callers do not notice what breaks."""

from headrace.fleet.observe.dashboard.panel import Panel, Query, Row, Unit
from headrace.fleet.observe.dashboard.promql import per_hour, per_minute, per_second, ratio_or_zero, troubles
from headrace.telemetry import catalogue

ROW = Row(
    title="Resilience",
    panels=(
        Panel(
            title="Attempts that failed, by endpoint",
            description="By the engine's fault, as a share of attempts sent there: one endpoint far over the others is "
            "the one to look at. Most are hidden from callers by the panels beside.",
            queries=(
                Query(
                    ratio_or_zero(
                        per_second(catalogue.ENDPOINT_FAILURES, by=("endpoint",)),
                        per_second(catalogue.ENDPOINT_REQUESTS, by=("endpoint",)),
                    ),
                    "{{endpoint}}",
                ),
            ),
            unit=Unit.SHARE,
        ),
        Panel(
            title="Retries and failovers",
            description="Before the first byte: attempts repeated at the same endpoint, or moved to another, by cause. "
            "No data here and in the next panels: nothing of it happened.",
            queries=(
                Query(troubles(catalogue.RETRIES, by=("model",)), "{{model}} retried"),
                Query(troubles(catalogue.FAILOVERS, by=("model", "code")), "{{model}} moved: {{code}}"),
            ),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Not retried for want of budget",
            description="The retry budget was used up: too much breaks at once for repeating to help.",
            queries=(Query(per_minute(catalogue.RETRY_BUDGET_REFUSALS), "not retried"),),
            unit=Unit.PER_MINUTE,
        ),
        Panel(
            title="Streams resumed, by cause",
            description="After the first byte: sent on to another endpoint since theirs died, stalled or was drained. "
            "What callers waited: the last panel of Latency.",
            queries=(Query(troubles(catalogue.RESUMES, by=("model", "cause")), "{{model}} {{cause}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Streams broken, by reason why not resumed",
            description="They ended in an error event. Reasons: docs/resume.md.",
            queries=(Query(troubles(catalogue.UNRESUMED, by=("model", "reason")), "{{model}} {{reason}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Hedges by result",
            description="Second attempts made while a first token was late. Few that win: the trigger is too early, "
            "or all engines are slow alike. No data: none is declared, or none was made.",
            queries=(Query(troubles(catalogue.HEDGES, by=("model", "result")), "{{model}} {{result}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Requests closed at engines",
            description="Closed before their answer was whole: callers left, deadlines passed, hedges lost.",
            queries=(Query(troubles(catalogue.CANCELS, by=("endpoint",)), "{{endpoint}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True, width=12,
        ),
        Panel(
            title="Restarts of replicas",
            description="Deaths and restarts of engines that headrace runs: headrace logs has their last words. No "
            "data where all engines run elsewhere.",
            queries=(
                Query(per_hour(catalogue.REPLICA_RESTARTS, by=("replica",)), "{{replica}} per hour"),
            ),
            unit=Unit.COUNT, width=12,
        ),
    ),
    is_open=False,
)  # fmt: skip
