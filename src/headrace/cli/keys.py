"""`headrace keys`: create, list and revoke API keys. Works with and without a running instance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.ledger_access import open_access, refusing_wrong_usage
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import emit, table
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.key_view import KeyView, view_key
from headrace.tenancy.key_wish import check_key_wish, expiry, parse_span_s

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()

TenantOption = Annotated[str, typer.Option("--tenant", "-t", metavar="TENANT", help="The tenant that will call.")]
ListTenantOption = Annotated[
    str | None, typer.Option("--tenant", "-t", metavar="TENANT", help="Only the keys of this tenant.")
]
ScopeOption = Annotated[
    Scope, typer.Option("--scope", help="inference calls models; admin uses the control API. A key has one of them.")
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="MODEL", help="A model it may use; repeat for more. Default: its tenant's."),
]
ExpiryOption = Annotated[
    str | None,
    typer.Option("--expires-in", metavar="TIME", help="How long it lives: 90m, 12h, 30d, 2w. Default: for ever."),
]
NameOption = Annotated[str, typer.Option("--name", metavar="TEXT", help="Your own note, shown by `keys list`.")]
KeyIdArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="The id, as `keys list` shows it.")]


@app.callback(epilog="Example: headrace keys create --tenant default --name laptop")
def keys() -> None:
    """Create, list and revoke API keys."""


@app.command(epilog="Example: headrace keys create --tenant default --name laptop --expires-in 30d")
def create(
    tenant: TenantOption,
    scope: ScopeOption = Scope.INFERENCE,
    models: ModelOption = None,
    expires_in: ExpiryOption = None,
    name: NameOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and show it, this once: only its hash is kept."""
    with open_access(config) as access:
        allowed = tuple(models) if models else None
        with refusing_wrong_usage():
            tenant_id = check_key_wish(access.declaration, tenant=tenant, scope=scope, models=allowed, name=name)
            expires_at = expiry(access.clock.wall_at(), None if expires_in is None else parse_span_s(expires_in))
        clear_text, record = access.keys.create_key(
            tenant=tenant_id, scope=scope, name=name, allowed_models=allowed, expires_at=expires_at
        )
        access.announce_key_change()
        shown = view_key(record, access.clock.wall_at())
    text = f"{clear_text}\nKeep it: it is not shown again. Tenant {tenant}, scope {scope.value}, id {record.key_id}."
    emit("key-created", {"key": clear_text, "record": shown}, as_json=as_json, human=text)


@app.command("list", epilog="Example: headrace keys list --tenant default")
def list_keys(tenant: ListTenantOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the keys, ended ones too; never their secrets."""
    with open_access(config) as access:
        records = access.keys.list_keys(tenant=None if tenant is None else TenantId(tenant))
        now = access.clock.wall_at()
    views = [view_key(record, now) for record in records]
    emit("keys", views, as_json=as_json, human=lambda: keys_table(views) if views else "There are no keys.")


@app.command(epilog="Example: headrace keys revoke k7f3q2m5xa")
def revoke(key_id: KeyIdArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """End a key for ever; running workers refuse it within a second. A whole key is taken, too."""
    with open_access(config) as access:
        record = access.keys.revoke_key(KeyId(key_id.removeprefix("hr-").partition("-")[0]))
        access.announce_key_change()
        shown = view_key(record, access.clock.wall_at())
    emit("key", shown, as_json=as_json, human=f"Revoked {record.key_id} (tenant {record.tenant}).")


def keys_table(views: Sequence[KeyView]) -> "RenderableType":
    """Show keys; never their secrets."""
    columns = ("id", "tenant", "scope", "state", "models", "created (UTC)", "expires (UTC)", "name")
    return table(columns, map(_row, views))


def _row(key: KeyView) -> tuple[object, ...]:
    return (
        key.key_id,
        key.tenant,
        key.scope.value,
        key.state.value,
        "all of its tenant" if key.allowed_models is None else ", ".join(key.allowed_models),
        f"{key.created_at:%Y-%m-%d %H:%M}",
        "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d %H:%M}",
        key.name or None,
    )
