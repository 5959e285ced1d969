"""The audit log: every change an operator makes, appended in the transaction of the change itself.

Both or neither are stored, whatever is killed when. Rows cannot be changed or deleted: the database refuses it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, select
from sqlalchemy.engine import RowMapping

from headrace.database.connect import Database
from headrace.database.tables import AUDIT
from headrace.domain.admin import Channel, Principal, Role

READ_ROWS = 1000
"""Most entries of one answer."""
_SECRET_FIELDS = frozenset({"secret_sha256", "secret", "key", "password", "token", "bearer"})
"""Fields that are never stored, whoever hands them over: the last line of defence, not the first."""


class AuditChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to what; `before` and `after` as people see it, None where there was or is nothing."""

    action: str
    """`tenant.create`, `key.revoke`, ...: the kind of subject, and what was done."""
    name: str
    """Of the organisation, tenant or project (`tenant/project`), the key's id, or the declaration's path."""
    tenant: str | None
    """Whom it concerns: what a role scoped to a tenant may read. None: all."""
    before: Any = None
    after: Any = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One row, as it is shown."""

    number: int
    at: datetime
    subject: str
    role: Role
    channel: Channel
    action: str
    name: str
    tenant: str | None
    before: Any
    after: Any


def append_audit(connection: Connection, principal: Principal, change: AuditChange, at: datetime) -> None:
    """Note `change` within the caller's transaction."""
    connection.execute(
        AUDIT.insert().values(
            at=at.timestamp(),
            subject=principal.subject,
            role=principal.grant.role.value,
            channel=principal.channel.value,
            action=change.action,
            name=change.name,
            tenant=change.tenant,
            before=_text(change.before),
            after=_text(change.after),
        )
    )


def read_audit(
    database: Database,
    *,
    tenant: str | None = None,
    since_at: float | None = None,
    before_number: int | None = None,
    limit: int = 100,
) -> tuple[AuditEntry, ...]:
    """The newest entries first.

    Args:
        tenant: only what concerns this tenant.
        since_at: not older than this (UTC epoch seconds).
        before_number: only entries with a smaller number, to read on where the last answer ended.

    Raises: DatabaseError.
    """
    query = select(AUDIT).order_by(AUDIT.c.number.desc()).limit(min(limit, READ_ROWS))
    if tenant is not None:
        query = query.where(AUDIT.c.tenant == tenant)
    if since_at is not None:
        query = query.where(AUDIT.c.at >= since_at)
    if before_number is not None:
        query = query.where(AUDIT.c.number < before_number)
    with database.reading() as connection:
        return tuple(_read(row) for row in connection.execute(query).mappings())


def changed_fields(before: Any, after: Any) -> Iterator[str]:
    """Say each difference in one line, such as `limits.requests_per_min: 60 -> 100`."""
    yield from _differences(before, after, "")


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:  # pyright: ignore[reportUnknownVariableType]
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return
    yield f"{path}: {_shown(before)} -> {_shown(after)}" if path else f"{_shown(before)} -> {_shown(after)}"


def _shown(value: Any) -> str:
    return "none" if value is None else msgspec.json.encode(value).decode()


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(_without_secrets(msgspec.to_builtins(value))).decode()


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(one) for key, one in value.items() if key not in _SECRET_FIELDS}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_without_secrets(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _read(row: RowMapping) -> AuditEntry:
    return AuditEntry(
        number=row["number"],
        at=datetime.fromtimestamp(row["at"], tz=UTC),
        subject=row["subject"],
        role=Role(row["role"]),
        channel=Channel(row["channel"]),
        action=row["action"],
        name=row["name"],
        tenant=row["tenant"],
        before=None if row["before"] is None else msgspec.json.decode(row["before"]),
        after=None if row["after"] is None else msgspec.json.decode(row["after"]),
    )
