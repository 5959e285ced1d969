"""`headrace audit`: who changed what, when, from what to what; with and without a running instance."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from headrace.cli.ledger_access import open_access, refusing_wrong_usage
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import compact_text, emit, table
from headrace.tenancy.audit import READ_ROWS, AuditEntry, changed_fields, read_audit
from headrace.tenancy.key_wish import parse_span_s

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()

TenantOption = Annotated[
    str | None, typer.Option("--tenant", "-t", metavar="TENANT", help="Only what concerns this tenant.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="How far back: 90m, 24h, 30d, 2w. Default: all.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=READ_ROWS, help="The newest so many changes.")]
_SHOWN_FIELDS = 4
_ROW_HAS = frozenset({"kind", "level", "version", "state", "since_at", "created_at"})
"""Fields that repeat the row's own cells, or say nothing of something new."""


@app.command(epilog="Example: headrace audit --tenant search --since 7d")
def audit(
    tenant: TenantOption = None,
    since: SinceOption = None,
    limit: LimitOption = 50,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest changes first. The log is append-only: no command and no route changes it."""
    with open_access(config) as access:
        with refusing_wrong_usage():
            span_s = None if since is None else parse_span_s(since)
        since_at = None if span_s is None else access.clock.wall_at().timestamp() - span_s
        entries = read_audit(access.database, tenant=tenant, since_at=since_at, limit=limit)
        if not entries:
            access.check_names(tenant=tenant)
    emit("audit", entries, as_json=as_json, human=lambda: audit_table(entries) if entries else "Nothing was changed.")


def audit_table(entries: Sequence[AuditEntry]) -> "RenderableType":
    """Show changes, one a row, newest first."""
    columns = ("number", "when (UTC)", "who", "via", "did", "change")
    return table(columns, map(_row, entries), expendable=("number", "via"))


def _row(entry: AuditEntry) -> tuple[object, ...]:
    return (
        entry.number,
        f"{entry.at:%Y-%m-%d %H:%M}",
        _who(entry.subject),
        entry.channel.value,
        entry.action,
        ": ".join(part for part in (_named(entry), _what(entry)) if part),
    )


def _named(entry: AuditEntry) -> str:
    """What was changed; a declaration by its file's name alone."""
    return PurePath(entry.name).name if entry.action.startswith("instance.") else entry.name


def _who(subject: str) -> str:
    """A file by its name alone: the folder is every time the same."""
    kind, _, path = subject.partition(":")
    return f"file:{PurePath(path).name}" if kind == "file" else subject


def _what(entry: AuditEntry) -> str:
    """Each difference; of what was made, what it is like; of what is gone, what it was like."""
    if entry.before is not None and entry.after is not None:
        fields = [line for line in changed_fields(entry.before, entry.after) if not line.startswith("version: ")]
    else:
        prefix = "" if entry.before is None else "was "
        fields = [prefix + line for line in _facts(entry.after if entry.before is None else entry.before, entry.name)]
    more = [f"and {len(fields) - _SHOWN_FIELDS} more"] if len(fields) > _SHOWN_FIELDS else []
    return "; ".join([*fields[:_SHOWN_FIELDS], *more])


def _facts(value: Any, name: str, path: str = "") -> Iterator[str]:
    """Every field that says something, in one line; not what the row has already."""
    if isinstance(value, dict):
        for key, one in cast("dict[str, Any]", value).items():
            if key not in _ROW_HAS and one != name:
                yield from _facts(one, name, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        texts = [compact_text(one) for one in cast("list[Any]", value)]
        yield from [f"{path}: {', '.join(texts)}"] if path and texts else texts
    elif value not in (None, "", {}):
        yield f"{path}: {compact_text(value)}" if path else compact_text(value)
