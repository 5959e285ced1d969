"""`headrace keys`: make, change, suspend and end API keys. Works with and without a running instance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from headrace.cli.ledger_access import LedgerAccess, open_access, refusing_wrong_usage
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import EXIT_USAGE, emit, fail, table
from headrace.cli.section_options import SetSectionOption, read_section
from headrace.cli.tenants import limits_text
from headrace.domain.admin import OWNER_OF_ALL, Grant, Role
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.governing import merge_patch
from headrace.tenancy.key_store import KeyChange
from headrace.tenancy.key_view import KeyView, view_key
from headrace.tenancy.key_wish import KeyWishError, check_key_wish, expiry, parse_span_s, read_limits
from headrace.tenancy.limit_words import limit_words

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey:
    """What `headrace keys create --json` prints, this once."""

    key: str
    """In clear text."""
    record: KeyView


TenantOption = Annotated[str, typer.Option("--tenant", "-t", metavar="TENANT", help="The tenant that will call.")]
ListTenantOption = Annotated[
    str | None, typer.Option("--tenant", "-t", metavar="TENANT", help="Only the keys of this tenant.")
]
ProjectOption = Annotated[
    str | None,
    typer.Option("--project", "-p", metavar="PROJECT", help="A project of the tenant whose limits hold as well."),
]
ScopeOption = Annotated[
    Scope, typer.Option("--scope", help="inference calls models; admin uses the control API. A key has one of them.")
]
RoleOption = Annotated[
    Role | None,
    typer.Option(
        "--role",
        help="Of an admin key: viewer looks, operator keeps things running, owner decides. Default: owner.",
    ),
]
OnlyTenantOption = Annotated[
    bool, typer.Option("--only-tenant", help="An admin key that sees and touches nothing but its tenant's own.")
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="MODEL", help="A model it may use; repeat for more. Default: its tenant's."),
]
ExpiryOption = Annotated[
    str | None,
    typer.Option("--expires-in", metavar="TIME", help="How long it lives: 90m, 12h, 30d, 2w. Default: for ever."),
]
ChangedExpiryOption = Annotated[
    str | None,
    typer.Option("--expires-in", metavar="TIME", help="How long it lives from now on: 90m, 12h, 30d, 2w, or never."),
]
NameOption = Annotated[str, typer.Option("--name", metavar="TEXT", help="Your own note, shown by `keys list`.")]
ChangedNameOption = Annotated[str | None, typer.Option("--name", metavar="TEXT", help="Another note of yours.")]
KeyIdArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="The id, as `keys list` shows it.")]


@app.callback(epilog="Example: headrace keys create --tenant default --name laptop")
def keys() -> None:
    """Make, change, suspend and end API keys."""


@app.command(epilog="Example: headrace keys create --tenant default --name laptop --set limits.requests_per_min=60")
def create(
    tenant: TenantOption,
    scope: ScopeOption = Scope.INFERENCE,
    project: ProjectOption = None,
    models: ModelOption = None,
    expires_in: ExpiryOption = None,
    name: NameOption = "",
    settings: SetSectionOption = None,
    role: RoleOption = None,
    is_narrow: OnlyTenantOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and show it, this once: only its hash is kept."""
    if scope is not Scope.ADMIN and (role is not None or is_narrow):
        fail("--role and --only-tenant belong to --scope admin", code=EXIT_USAGE)
    with open_access(config) as access:
        allowed = tuple(models) if models else None
        with refusing_wrong_usage():
            tenant_id = check_key_wish(
                access.declaration, tenant=tenant, scope=scope, models=allowed, name=name, project=project
            )
            expires_at = expiry(access.clock.wall_at(), None if expires_in is None else parse_span_s(expires_in))
            section = _limits_section(settings)
            limits = read_limits(section.get("limits", {}), section.get("budget", {}))
        grant = Grant(role=role or Role.OWNER, tenant=tenant_id if is_narrow else None)
        clear_text, record = access.keys.create_key(
            tenant=tenant_id,
            scope=scope,
            name=name,
            allowed_models=allowed,
            expires_at=expires_at,
            project=project,
            limits=limits,
            grant=grant if scope is Scope.ADMIN else OWNER_OF_ALL,
            by=access.principal,
        )
        access.announce_change()
        shown = view_key(record, access.clock.wall_at(), grant if scope is Scope.ADMIN else None)
    text = f"{clear_text}\nKeep it: it is not shown again. Tenant {tenant}, scope {scope.value}, id {record.key_id}."
    emit("key-created", CreatedKey(key=clear_text, record=shown), as_json=as_json, human=text)


@app.command("list", epilog="Example: headrace keys list --tenant default")
def list_keys(tenant: ListTenantOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the keys, ended ones too; never their secrets."""
    with open_access(config) as access:
        records = access.keys.list_keys(tenant=None if tenant is None else TenantId(tenant))
        if not records:
            access.check_names(tenant=tenant)
        grants = access.keys.read_grants()
        now = access.clock.wall_at()
    views = [view_key(record, now, grants.get(record.key_id)) for record in records]
    emit("keys", views, as_json=as_json, human=lambda: keys_table(views) if views else "There are no keys.")


@app.command(epilog="Example: headrace keys change k7f3q2m5xa --expires-in 30d --set budget.per_day=5")
def change(
    key_id: KeyIdArgument,
    name: ChangedNameOption = None,
    models: ModelOption = None,
    project: ProjectOption = None,
    expires_in: ChangedExpiryOption = None,
    settings: SetSectionOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a key's note, models, project, end or limits; what is not said stays."""
    with open_access(config) as access, refusing_wrong_usage():
        before = access.keys.get_key(_id_of(key_id))
        made = KeyChange(
            name=msgspec.UNSET if name is None else name,
            allowed_models=msgspec.UNSET if models is None else tuple(models),
            project=msgspec.UNSET if project is None else project,
            expires_at=msgspec.UNSET
            if expires_in is None
            else expiry(access.clock.wall_at(), None if expires_in == "never" else parse_span_s(expires_in)),
        )
        check_key_wish(
            access.declaration,
            tenant=before.tenant,
            scope=before.scope,
            models=models or before.allowed_models,
            name=before.name if name is None else name,
            project=project or before.project,
        )
        if settings:
            section = merge_patch(limit_words(before.limits), _limits_section(settings))
            made = msgspec.structs.replace(made, limits=read_limits(section["limits"], section["budget"]))
        after = access.keys.change_key(before.key_id, made, expected_version=before.version, by=access.principal)
        _finish(access, after, f"Changed {after.key_id} (tenant {after.tenant}).", as_json=as_json)


@app.command(epilog="Example: headrace keys suspend k7f3q2m5xa")
def suspend(key_id: KeyIdArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Refuse a key until it is resumed; running workers refuse it within a second."""
    _do("Suspended", key_id, config, lambda access, one: access.keys.suspend_key(one, by=access.principal), as_json)


@app.command(epilog="Example: headrace keys resume k7f3q2m5xa")
def resume(key_id: KeyIdArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Take a suspended key again."""
    _do("Resumed", key_id, config, lambda access, one: access.keys.resume_key(one, by=access.principal), as_json)


@app.command(epilog="Example: headrace keys revoke k7f3q2m5xa")
def revoke(key_id: KeyIdArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """End a key for ever; running workers refuse it within a second. A whole key is taken, too."""
    _do("Revoked", key_id, config, lambda access, one: access.keys.revoke_key(one, by=access.principal), as_json)


def keys_table(views: Sequence[KeyView]) -> "RenderableType":
    """Show keys; never their secrets."""
    columns = ("id", "tenant", "may", "state", "models", "limits", "created (UTC)", "expires (UTC)", "name")
    rows = [_row(view) for view in views]
    if not any(row[_LIMITS] for row in rows):  # the column most keys leave empty, and the widest
        columns, rows = _without(columns, _LIMITS), [_without(row, _LIMITS) for row in rows]
    return table(columns, rows, expendable=("created (UTC)", "models", "limits", "name"))


_LIMITS = 5
_Cell = TypeVar("_Cell")


def _without(cells: tuple[_Cell, ...], index: int) -> tuple[_Cell, ...]:
    return (*cells[:index], *cells[index + 1 :])


def _do(
    done: str,
    key_id: str,
    config: ConfigOption,
    act: Callable[[LedgerAccess, KeyId], KeyRecord],
    as_json: bool,
) -> None:
    with open_access(config) as access:
        before = access.keys.get_key(_id_of(key_id))
        record = act(access, before.key_id)
        said = f"{done} {record.key_id} (tenant {record.tenant})." if record != before else _unchanged(done, record)
        _finish(access, record, said, as_json=as_json)


def _unchanged(done: str, record: KeyRecord) -> str:
    """What the key was already, and since when."""
    at = {"Revoked": record.revoked_at, "Suspended": record.suspended_at}.get(done)
    was = "not suspended" if at is None else f"{done.lower()} already, at {at:%Y-%m-%d %H:%M} UTC"
    return f"{record.key_id} (tenant {record.tenant}) was {was}; nothing was changed."


def _finish(access: LedgerAccess, record: KeyRecord, said: str, *, as_json: bool) -> None:
    access.announce_change()
    grants = access.keys.read_grants()
    shown = view_key(record, access.clock.wall_at(), grants.get(record.key_id))
    emit("key", shown, as_json=as_json, human=said)


def _id_of(text: str) -> KeyId:
    """The id in what was given, which may be a whole key."""
    return KeyId(text.removeprefix("hr-").partition("-")[0])


def _limits_section(settings: Sequence[str] | None) -> dict[str, dict[str, object]]:
    section = read_section(settings)
    wrong = [key for key in section if key not in ("limits", "budget")]
    if wrong:
        raise KeyWishError(f'a key has no "{wrong[0]}" of its own', hint="It has limits.* and budget.*.")
    return section


def _row(key: KeyView) -> tuple[object, ...]:
    return (
        key.key_id,
        key.tenant if key.project is None else f"{key.tenant}/{key.project}",
        _powers(key),
        key.state.value,
        "all of its tenant" if key.allowed_models is None else ", ".join(key.allowed_models),
        limits_text({"limits": key.limits, "budget": key.budget}),
        f"{key.created_at:%Y-%m-%d %H:%M}",
        "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d %H:%M}",
        key.name or None,
    )


def _powers(key: KeyView) -> str:
    """`infer`, or the role of an operator and how far it reaches."""
    if key.scope is not Scope.ADMIN:
        return "infer"
    if key.grant is None:
        return "nothing"
    return key.grant.role.value if key.grant.is_global else f"{key.grant.role.value} of its tenant"
