"""First row: is it fine?"""

from headrace.domain.errors import ERRORS, Fault, Outcome
from headrace.fleet.observe.dashboard.panel import Color, Panel, Query, Row, Shape, Threshold, Unit
from headrace.fleet.observe.dashboard.promql import (
    largest,
    per_second,
    ratio,
    ratio_or_zero,
    summed,
)
from headrace.telemetry import catalogue

PLATFORM_CODES = "|".join(code.value for code, spec in ERRORS.items() if spec.fault is Fault.PLATFORM)
"""Refusals that say that headrace or its engines cannot serve now; a caller's limit (429) is none of them."""
FAILED = f'outcome="{Outcome.FAILED.value}"'
NOT_COMPLETED = f'outcome!="{Outcome.COMPLETED.value}"'
TURNED_AWAY = f'code=~"{PLATFORM_CODES}"'
BOUND = 'le="$ttft_bound"'
OUT = 'state=~"unknown|not-ready|ejected"'
FIRING = 'ALERTS{alertname=~"Headrace.*",alertstate="firing"}'
"""Prometheus' own series of the rules that `headrace observe rules` prints."""
OUTCOME_COLORS = (
    (Outcome.COMPLETED.value, Color.GREEN), (Outcome.REJECTED.value, Color.YELLOW),
    (Outcome.EVICTED.value, Color.ORANGE), (Outcome.FAILED.value, Color.RED), (Outcome.CANCELLED.value, Color.BLUE),
)  # fmt: skip

ALL, BY_MODEL = per_second(catalogue.REQUESTS), per_second(catalogue.REQUESTS, by=("model",))
FIRST_TOKENS = per_second(catalogue.TTFT, suffix="_count")
IN_TIME = per_second(catalogue.TTFT, BOUND, suffix="_bucket")
ENGINES_OUT = f"sum({largest(catalogue.ENDPOINT_STATE, OUT, by=('endpoint', 'state'))} > bool 0)"
IN_WORK = (Query(summed(catalogue.IN_FLIGHT), "in flight"), Query(summed(catalogue.QUEUE_WAITING), "waiting"))
SHARE_IS_BAD = (Threshold(0.005, Color.YELLOW), Threshold(0.02, Color.RED))

NUMBERS = (
    Panel(
        title="Requests",
        description="Requests that ended, per second, whatever their outcome.",
        queries=(Query(ALL, "requests"),),
        unit=Unit.REQUESTS_PER_SECOND, shape=Shape.NUMBER, width=3,
    ),
    Panel(
        title="Failed",
        description="Share of requests that an engine, the network or headrace broke. The alert HeadraceRequestsFail "
        "fires from 2 % on. By code: the panel below; what a code means: docs/errors.md.",
        queries=(Query(ratio_or_zero(per_second(catalogue.REQUESTS, FAILED), ALL), "failed"),),
        unit=Unit.SHARE, shape=Shape.NUMBER, width=3,
        thresholds=SHARE_IS_BAD,
    ),
    Panel(
        title="Turned away",
        description="Share of requests that found no room or no engine, or waited in vain (503). Refusals by a "
        "caller's own limits (429) are not in it: see the row of tenants.",
        queries=(Query(ratio_or_zero(per_second(catalogue.REQUESTS, TURNED_AWAY), ALL), "turned away"),),
        unit=Unit.SHARE, shape=Shape.NUMBER, width=3,
        thresholds=SHARE_IS_BAD,
    ),
    Panel(
        title="TTFT in time",
        description="Share of first tokens that came within the bound chosen above (TTFT bound), observer gateway. No "
        "goodput: requests that were refused or broke before their first token are not in it.",
        queries=(Query(ratio(IN_TIME, FIRST_TOKENS), "in time"),),
        unit=Unit.SHARE, shape=Shape.NUMBER, width=3, top=1,
        thresholds=(Threshold(0, Color.RED), Threshold(0.9, Color.YELLOW), Threshold(0.99, Color.GREEN)),
    ),
    Panel(
        title="Now",
        description="Admitted requests that have not ended, and those of them that wait in the gateway for room.",
        queries=IN_WORK,
        unit=Unit.COUNT, shape=Shape.NUMBER, width=4,
    ),
    Panel(
        title="Engines out",
        description="Endpoints that some gateway worker does not use: not probed yet, not ready, or ejected after "
        "failures. Engines that are drained on purpose are not in it. Which, and since when: the row Load; why: "
        "headrace status.",
        queries=(Query(ENGINES_OUT, "out"),),
        unit=Unit.COUNT, shape=Shape.NUMBER, width=3, thresholds=(Threshold(1, Color.RED),),
    ),
    Panel(
        title="Gateways",
        description="Instances whose metrics were scraped just now. One that is gone says nothing anywhere on this "
        "page: compare with how many there should be, and alert on up == 0.",
        queries=(Query(f"count({summed(catalogue.IN_FLIGHT, by=('instance',))})", "gateways"),),
        unit=Unit.COUNT, shape=Shape.NUMBER, width=2,
    ),
    Panel(
        title="Alerts firing",
        description="Of the rules that headrace observe rules prints. Prometheus says the same where none fires and "
        "where they were not loaded.",
        queries=(Query(f"count({FIRING})", "firing"),),
        unit=Unit.COUNT, shape=Shape.NUMBER, width=3, thresholds=(Threshold(1, Color.RED),),
        empty_text="none, or no rules",
    ),
)  # fmt: skip

COURSES = (
    Panel(
        title="Requests by outcome",
        description="Completed; rejected: never reached an engine; evicted: removed by headrace after queueing; "
        "failed: an engine, the network or headrace broke it; cancelled: the caller left or its deadline passed.",
        queries=(Query(per_second(catalogue.REQUESTS, by=("outcome",)), "{{outcome}}"),),
        unit=Unit.REQUESTS_PER_SECOND, is_stacked=True, colors=OUTCOME_COLORS,
    ),
    Panel(
        title="Not completed, by code",
        description="Requests that did not complete, by outcome and error code. Codes, whose fault each is and what "
        "to do: docs/errors.md. No data: all were completed.",
        queries=(
            Query(
                f"{per_second(catalogue.REQUESTS, NOT_COMPLETED, by=('outcome', 'code'))} > 0",
                "{{code}} ({{outcome}})",
            ),
        ),
        unit=Unit.REQUESTS_PER_SECOND, is_stacked=True,
    ),
    Panel(
        title="Failed share by model",
        description="As the number above, each model by itself; the alert fires at the line.",
        queries=(
            Query(ratio_or_zero(per_second(catalogue.REQUESTS, FAILED, by=("model",)), BY_MODEL), "{{model}}"),
        ),
        unit=Unit.SHARE, thresholds=(Threshold(0.02, Color.RED),),
    ),
    Panel(
        title="First tokens in time, by model",
        description="Share of first tokens within the bound chosen above.",
        queries=(
            Query(
                ratio(
                    per_second(catalogue.TTFT, BOUND, by=("model",), suffix="_bucket"),
                    per_second(catalogue.TTFT, by=("model",), suffix="_count"),
                ),
                "{{model}}",
            ),
        ),
        unit=Unit.SHARE, top=1,
    ),
    Panel(
        title="In flight and waiting",
        description="Admitted requests that have not ended; waiting is the part that found no room yet.",
        queries=IN_WORK,
        unit=Unit.COUNT,
    ),
    Panel(
        title="Alerts firing",
        description="What each means and what to do: docs/alerts.md. Nothing where none fires, and where the rules "
        "were not loaded (headrace observe rules).",
        queries=(Query(FIRING, ""),),
        unit=Unit.COUNT, shape=Shape.ROWS, empty_text="none fires, or no rules are loaded",
    ),
)  # fmt: skip

ROW = Row(title="Is it fine?", panels=(*NUMBERS, *COURSES), is_open=True)
