"""`headrace tenants`: the declared tenants, what they may use, how many keys they have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.ledger_access import open_access
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import emit, table
from headrace.tenancy.key_view import TenantView, view_tenants

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()


@app.command(epilog="Example: headrace tenants")
def tenants(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the tenants of the declaration, their limits and their active keys."""
    with open_access(config) as access:
        views = view_tenants(access.declaration, access.keys.list_keys(), access.clock.wall_at())
    emit("tenants", views, as_json=as_json, human=lambda: tenants_table(views))


def tenants_table(views: Sequence[TenantView]) -> "RenderableType":
    """Show tenants with their limits."""
    columns = ("tenant", "models", "requests per minute", "concurrent requests", "active keys")
    return table(columns, map(_row, views))


def _row(tenant: TenantView) -> tuple[object, ...]:
    if not tenant.is_declared:
        return (tenant.tenant, "not declared: its keys are refused", None, None, tenant.active_keys)
    return (
        tenant.tenant,
        "all" if "*" in tenant.models else ", ".join(tenant.models) or "none",
        "no limit" if tenant.requests_per_min is None else tenant.requests_per_min,
        "no limit" if tenant.concurrent_requests is None else tenant.concurrent_requests,
        tenant.active_keys,
    )
