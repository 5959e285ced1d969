"""`headrace quota`: every limit that holds, how much of it is used, and when it is free again; asks the instance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.control_client import ControlClient
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, table
from headrace.settings import load_settings
from headrace.tenancy.quota_view import LimitView

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()

TenantOption = Annotated[
    str | None, typer.Option("--tenant", "-t", metavar="TENANT", help="Only what holds for this tenant.")
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", metavar="PROJECT", help="Only what holds for this project of it.")
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", metavar="KEY_ID", help="Only what holds for this key.")]


@app.command(epilog="Example: headrace quota --tenant search")
def quota(
    tenant: TenantOption = None, project: ProjectOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Show limits, what is used of them, what is left and when it is free again, from the widest level down.

    Money is shown by `headrace budget`.
    """
    views = ask_limits("quota", tenant, project, key)
    empty = "No limits are declared here; `headrace tenants` shows who there is."
    emit("quota", views, as_json=as_json, human=lambda: quota_table(views) if views else empty)


def ask_limits(path: str, tenant: str | None, project: str | None, key: str | None) -> tuple[LimitView, ...]:
    """Ask the running instance. Raises: OperatorError where none runs."""
    query = {"tenant": tenant, "project": project, "key": key}
    with ControlClient(load_settings()) as client:
        return client.limits(path, {name: value for name, value in query.items() if value is not None})


def quota_table(views: Sequence[LimitView]) -> "RenderableType":
    """Show limits, one a row."""
    columns = ["level", "name", "limit", "allowed", "used", "left", "used %", "free again in s"]
    rows = [_row(view) for view in views]
    if any(view.leased is not None for view in views):  # by several workers
        columns.insert(5, "leased")
        for row, view in zip(rows, views, strict=True):
            row.insert(5, None if view.leased is None else _number(view.leased))
    return table(columns, rows, expendable=("used %", "allowed"))


def _row(view: LimitView) -> list[object]:
    return [
        view.level.value,
        view.name or "all callers",
        view.limit_name.replace("_", " "),
        _number(view.limit),
        _number(view.used),
        _number(view.remaining),
        None if view.used_ratio is None else f"{view.used_ratio * 100:.0f}",
        None if view.reset_s is None else f"{view.reset_s:.0f}",
    ]


def _number(value: float) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value):,}"
