"""`headrace tenants`: organisations, tenants and projects, of the file and of the API; with and without an instance."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from headrace.cli.ledger_access import LedgerAccess, open_access, refusing_wrong_usage
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import compact_text, emit, table
from headrace.cli.section_options import DryRunOption, SetSectionOption, read_section
from headrace.tenancy.audit import changed_fields
from headrace.tenancy.governing import EntryView, ManagedBy
from headrace.tenancy.overlay import EntryKind

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()

KindOption = Annotated[
    EntryKind, typer.Option("--kind", help="A tenant, or an organisation whose limits hold for several tenants.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant or organisation.")]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", metavar="PROJECT", help="Only this project of the tenant.")
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for whoever looks later.")]
RevokeOption = Annotated[bool, typer.Option("--revoke-keys", help="End the tenant's keys with it.")]


@app.callback(invoke_without_command=True, epilog="Example: headrace tenants")
def tenants(
    context: typer.Context,
    kind: KindOption = EntryKind.TENANT,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show and change who may call: tenants, their organisations and projects.

    What headrace.yaml declares is changed there; what was made here or over the control API is changed here. Both can
    be suspended: new requests are refused within a second, requests in work are finished.
    """
    if context.invoked_subcommand is None:
        _list(kind, config, as_json=as_json)


@app.command("list", epilog="Example: headrace tenants list --kind organisation")
def list_tenants(kind: KindOption = EntryKind.TENANT, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List them with their limits and active keys."""
    _list(kind, config, as_json=as_json)


def _list(kind: EntryKind, config: ConfigOption, *, as_json: bool) -> None:
    with open_access(config) as access:
        views = access.governor.list_entries(kind)
    empty = f"There are no {kind.section}."
    emit(kind.section, views, as_json=as_json, human=lambda: tenants_table(views) if views else empty)


@app.command(epilog="Example: headrace tenants show search")
def show(
    name: NameArgument, kind: KindOption = EntryKind.TENANT, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show one: what is set, who owns it, and where."""
    with open_access(config) as access:
        view = access.governor.get_entry(kind, name)
    emit(kind.value, view, as_json=as_json, human=lambda: _described(view))


@app.command(epilog="Example: headrace tenants create search --set limits.requests_per_min=600 --set budget.per_day=20")
def create(
    name: NameArgument,
    settings: SetSectionOption = None,
    kind: KindOption = EntryKind.TENANT,
    is_dry_run: DryRunOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant or organisation that is managed here, not in headrace.yaml."""
    with open_access(config) as access, refusing_wrong_usage():
        view = access.governor.create(kind, name, read_section(settings), by=access.principal, is_dry_run=is_dry_run)
        _announce(access, is_dry_run=is_dry_run)
    done = "Would create" if is_dry_run else "Created"
    emit(kind.value, view, as_json=as_json, human=lambda: f"{done} {kind.value} {name}.\n{_described(view)}")


@app.command(epilog="Example: headrace tenants change search --set limits.requests_per_min=null --set weight=2")
def change(
    name: NameArgument,
    settings: SetSectionOption = None,
    kind: KindOption = EntryKind.TENANT,
    is_dry_run: DryRunOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change one that is managed here. For one of headrace.yaml, the answer says the line to edit."""
    with open_access(config) as access, refusing_wrong_usage():
        before = access.governor.get_entry(kind, name)
        view = access.governor.change(
            kind,
            name,
            read_section(settings),
            by=access.principal,
            expected_version=before.version,
            is_dry_run=is_dry_run,
        )
        _announce(access, is_dry_run=is_dry_run)
    lines = list(changed_fields(before.section, view.section)) or ["nothing changes"]
    emit(kind.value, view, as_json=as_json, human=lambda: "\n".join([*lines, *_closing(view, is_dry_run=is_dry_run)]))


@app.command(epilog="Example: headrace tenants suspend search --reason 'runaway job, ticket 4711'")
def suspend(
    name: NameArgument,
    project: ProjectOption = None,
    reason: ReasonOption = "",
    kind: KindOption = EntryKind.TENANT,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse new requests within a second, whoever owns the entry; requests in work are finished."""
    with open_access(config) as access, refusing_wrong_usage():
        was_suspended = _is_suspended(access.governor.get_entry(kind, name), project)
        view = access.governor.suspend(kind, name, project=project, reason=reason, by=access.principal)
        access.announce_change()
    subject = _subject(kind, name, project)
    said = f"{subject} was suspended already." if was_suspended else f"Suspended {subject}."
    emit(kind.value, view, as_json=as_json, human=said)


@app.command(epilog="Example: headrace tenants resume search")
def resume(
    name: NameArgument,
    project: ProjectOption = None,
    kind: KindOption = EntryKind.TENANT,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take requests again."""
    with open_access(config) as access:
        was_suspended = _is_suspended(access.governor.get_entry(kind, name), project)
        view = access.governor.resume(kind, name, project=project, by=access.principal)
        access.announce_change()
    subject = _subject(kind, name, project)
    emit(
        kind.value,
        view,
        as_json=as_json,
        human=f"Resumed {subject}." if was_suspended else f"{subject} was not suspended.",
    )


@app.command(epilog="Example: headrace tenants delete search --revoke-keys")
def delete(
    name: NameArgument,
    revokes_keys: RevokeOption = False,
    kind: KindOption = EntryKind.TENANT,
    is_dry_run: DryRunOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget one that is managed here. Its usage stays in the ledger."""
    with open_access(config) as access:
        view = access.governor.delete(kind, name, by=access.principal, revokes_keys=revokes_keys, is_dry_run=is_dry_run)
        _announce(access, is_dry_run=is_dry_run)
    done = "Would delete" if is_dry_run else "Deleted"
    emit(kind.value, view, as_json=as_json, human=f"{done} {kind.value} {name}.")


def tenants_table(views: Sequence[EntryView]) -> "RenderableType":
    """Show organisations or tenants, one a row."""
    kind = views[0].kind if views else EntryKind.TENANT
    columns = (kind.value, "organisation", "managed by", "state", "models", "limits", "active keys")
    rows = [_row(view) for view in views]
    if kind is EntryKind.ORGANISATION:
        columns, rows = (columns[0], *columns[2:6]), [(row[0], *row[2:6]) for row in rows]
    return table(columns, rows, expendable=("organisation", "active keys", "models", "managed by"))


def limits_text(section: dict[str, Any]) -> str | None:
    """Limits and budget of a section in few words, such as `600 requests/min, 4 at once, 20 per day`."""
    limits = cast("dict[str, Any]", section.get("limits", {}))
    words = [f"{value} {_LIMIT_WORDS.get(key, key)}" for key, value in limits.items() if key != "per_request"]
    if limits.get("per_request"):
        words.append("caps per request")
    budget = cast("dict[str, Any]", section.get("budget", {}))
    words += [f"{value} {key.replace('_', ' ')}" for key, value in budget.items()]
    return ", ".join(words) or None


_LIMIT_WORDS = {
    "requests_per_min": "requests/min",
    "input_tokens_per_min": "input tokens/min",
    "output_tokens_per_min": "output tokens/min",
    "gpu_seconds_per_min": "GPU seconds/min",
    "concurrent_requests": "at once",
    "concurrent_interactive": "interactive at once",
    "concurrent_streaming": "streams at once",
    "concurrent_offline": "offline at once",
}


def _row(view: EntryView) -> tuple[object, ...]:
    if view.managed_by is ManagedBy.NOBODY:
        return (view.name, None, "nobody", "keys are refused", None, None, view.active_keys)
    models = cast("list[str]", view.section.get("models", ["*"]))
    return (
        view.name,
        view.section.get("organisation"),
        view.place or view.managed_by.value,
        _state(view),
        "all" if "*" in models else ", ".join(models) or "none",
        limits_text(view.section) or "no limit",
        view.active_keys,
    )


def _state(view: EntryView) -> str:
    if view.is_suspended:
        return "suspended"
    if view.suspended_projects:
        return f"suspended: {', '.join(view.suspended_projects)}"
    return "active"


def _described(view: EntryView) -> str:
    lines = [f"{view.kind.value} {view.name}: {_state(view)}, managed by {view.place or view.managed_by.value}"]
    if view.reason or view.suspended_since_at is not None:
        since = f" since {view.suspended_since_at:%Y-%m-%d %H:%M} UTC" if view.suspended_since_at is not None else ""
        lines.append(f"suspended{since}{f': {view.reason}' if view.reason else ''}")
    if view.kind is EntryKind.TENANT:
        lines.append(f"active keys: {view.active_keys}")
    lines += [f"  {line}" for line in _settings(view.section)] or ["everything is as by default"]
    return "\n".join([*lines, *(f"warning: {one}" for one in view.warnings)])


def _settings(section: dict[str, Any], path: str = "") -> Iterator[str]:
    """Each key that is set, in one line, as `--set` takes it."""
    for key, value in section.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _settings(cast("dict[str, Any]", value), here)
        else:
            yield f"{here}={compact_text(value)}"


def _closing(view: EntryView, *, is_dry_run: bool) -> list[str]:
    return [*(f"warning: {one}" for one in view.warnings), *(["(dry run: nothing was done)"] if is_dry_run else [])]


def _is_suspended(view: EntryView, project: str | None) -> bool:
    return view.is_suspended if project is None else project in view.suspended_projects


def _subject(kind: EntryKind, name: str, project: str | None) -> str:
    return f"{kind.value} {name}" if project is None else f"project {project} of {kind.value} {name}"


def _announce(access: LedgerAccess, *, is_dry_run: bool) -> None:
    if not is_dry_run:
        access.announce_change()
