"""Fourth row: who uses how much, what it costs, and whose limits refuse."""

from headrace.fleet.observe.dashboard.health import NOT_COMPLETED
from headrace.fleet.observe.dashboard.panel import Color, Panel, Query, Row, Shape, Threshold, Unit
from headrace.fleet.observe.dashboard.promql import per_hour, per_minute, per_second, series, troubles
from headrace.telemetry import catalogue

MONEY_LEGEND = "{{tenant}} ({{currency}})"
"""The currency is what its unit is chosen by."""
SPENT = f"sum by (tenant, currency) (increase({series(catalogue.TENANT_COST)}[$__range]))"
BUDGETS = (
    f"max by (level, name, period) ({series(catalogue.BUDGET_USED)} / ({series(catalogue.BUDGET)} > 0))"
)  # fmt: skip
"""Gateways that share a budget all say the same of it."""

ROW = Row(
    title="Tokens and cost by tenant",
    panels=(
        Panel(
            title="Output tokens",
            description="As engines counted them, when a request ended. Tenants beyond quota.named_tenants are other.",
            queries=(Query(per_second(catalogue.TENANT_TOKENS, 'kind="output"', by=("tenant",)), "{{tenant}}"),),
            unit=Unit.TOKENS_PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="Input tokens",
            description="Whether they came out of a cache or not.",
            queries=(Query(per_second(catalogue.TENANT_TOKENS, 'kind="input"', by=("tenant",)), "{{tenant}}"),),
            unit=Unit.TOKENS_PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="Tokens by model",
            description="Input, the part of it that came out of a cache, and output.",
            queries=(Query(per_second(catalogue.TOKENS, by=("model", "kind")), "{{model}} {{kind}}"),),
            unit=Unit.TOKENS_PER_SECOND,
        ),
        Panel(
            title="Cost per hour",
            description="At the present rate, by prices. 0 where no prices are declared.",
            queries=(
                Query(per_hour(catalogue.TENANT_COST, by=("tenant", "currency")), MONEY_LEGEND),
            ),
            unit=Unit.MONEY, is_stacked=True,
        ),
        Panel(
            title="Cost in the time shown",
            description="Estimated by Prometheus from what was scraped; the exact sums are in headrace usage.",
            queries=(Query(SPENT, MONEY_LEGEND),),
            unit=Unit.MONEY, shape=Shape.SHARES,
        ),
        Panel(
            title="GPUs at work",
            description="GPU seconds per second attributed to each tenant's requests.",
            queries=(Query(per_second(catalogue.TENANT_GPU, by=("tenant",)), "{{tenant}}"),),
            unit=Unit.COUNT, is_stacked=True,
        ),
        Panel(
            title="Budgets used",
            description="Spent and reserved of each declared budget in the present day or month (UTC). A "
            "request whose cost might go beyond is refused, shortly before 100 %: headrace budget. No data: none is "
            "declared.",
            queries=(Query(BUDGETS, "{{level}} {{name}} ({{period}})"),),
            unit=Unit.SHARE, shape=Shape.SHARES, top=1,
            thresholds=(Threshold(0.8, Color.ORANGE), Threshold(1, Color.RED)),
        ),
        Panel(
            title="Refused by limits",
            description="By level and limit, 429 for the caller: headrace quota shows whose limit it is.",
            queries=(Query(per_minute(catalogue.QUOTA_REFUSALS, by=("level", "limit")), "{{level}}: {{limit}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Not completed, by tenant",
            description="Whom it hurts: requests by tenant that were rejected, evicted, failed or cancelled.",
            queries=(
                Query(
                    troubles(catalogue.TENANT_REQUESTS, NOT_COMPLETED, by=("tenant", "outcome")),
                    "{{tenant}} {{outcome}}",
                ),
            ),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
    ),
    is_open=False,
)  # fmt: skip
