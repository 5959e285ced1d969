"""`headrace budget`: what was spent of each budget by day and month, with marks at 80 and 100 %; asks the instance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, table
from headrace.cli.quota import KeyOption, ProjectOption, TenantOption, ask_limits
from headrace.tenancy.quota_view import LimitView

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()
_BAR = 10
_MOST_DECIMALS = 9
"""Costs are kept in billionths."""
_ROUNDED_OFF = 0.01
"""Rounding may take or add so much of an amount. Chosen: what is read off a screen."""


@app.command(epilog="Example: headrace budget --tenant search")
def budget(
    tenant: TenantOption = None, project: ProjectOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Show what was spent of each budget this day and month (UTC), and which have passed 80 or 100 %."""
    views = ask_limits("budget", tenant, project, key)
    empty = "No budgets are declared here: tenants.<name>.budget in headrace.yaml, or `headrace tenants change`."
    emit("budget", views, as_json=as_json, human=lambda: budget_table(views) if views else empty)


def budget_table(views: Sequence[LimitView]) -> "RenderableType":
    """Show budgets, one a row."""
    columns = ("level", "name", "budget", "allowed", "spent", "left", "currency", "used", "mark")
    return table(columns, map(_row, views), expendable=("currency", "left", "level", "allowed"))


def _row(view: LimitView) -> tuple[object, ...]:
    return (
        view.level.value,
        view.name or "all callers",
        view.limit_name.replace("_", " "),
        money_text(view.limit, 2),
        money_text(view.used, 4),
        money_text(view.remaining, 4),
        view.currency,
        _bar(view.used_ratio),
        mark_text(view),
    )


def money_text(amount: float, decimals: int) -> str:
    """With so many decimals, or as many more as it takes to say the amount: no budget and no cost reads as nothing."""
    while decimals < _MOST_DECIMALS and abs(round(amount, decimals) - amount) > abs(amount) * _ROUNDED_OFF:
        decimals += 1
    return f"{amount:,.{decimals}f}"


def mark_text(view: LimitView) -> str | None:
    """`spent`, `80 %` or nothing."""
    if view.passed_mark is None:
        return None
    return "spent" if view.passed_mark >= 1 else f"over {view.passed_mark * 100:.0f} %"


def _bar(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    filled = min(_BAR, round(ratio * _BAR))
    return f"{'#' * filled}{'.' * (_BAR - filled)} {ratio * 100:.0f} %"
