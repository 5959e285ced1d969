"""Organisations and tenants made over the API, and suspensions, in the database; each change with its audit line.

Plain storage: what may be changed, and to what, is decided in `governing.py`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError

from headrace.database.change_counter import Watched, count_change, read_changes
from headrace.database.connect import Database
from headrace.database.tables import SUSPENSIONS, TENANCY_ENTRIES
from headrace.domain.admin import Principal
from headrace.domain.clock import Clock
from headrace.domain.quota import Level
from headrace.tenancy.audit import AuditChange, append_audit
from headrace.tenancy.conflict import ChangedMeanwhileError, ConflictError
from headrace.tenancy.overlay import EntryKind, StoredEntry, Suspension, TenancyOverlay


class EntryStore:
    """The overlay of one instance.

    Concurrency: every call is one transaction and blocks on the database; safe from any thread.
    Raises: DatabaseError from every method where the database cannot be used.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def read_version(self) -> int:
        """A number that grows with every change: one cheap look-up for a poller."""
        return read_changes(self._database, Watched.TENANCY)

    def read(self) -> TenancyOverlay:
        """Everything, in the order in which it was made."""
        with self._database.reading() as connection:
            entries = connection.execute(select(TENANCY_ENTRIES).order_by(*_ENTRY_ORDER)).mappings().all()
            suspensions = connection.execute(select(SUSPENSIONS).order_by(*_SUSPENSION_ORDER)).mappings().all()
        return TenancyOverlay(
            entries=tuple(_read_entry(row) for row in entries),
            suspensions=tuple(_read_suspension(row) for row in suspensions),
        )

    def find_entry(self, kind: EntryKind, name: str) -> StoredEntry | None:
        """One entry made over the API."""
        with self._database.reading() as connection:
            return _find_entry(connection, kind, name)

    def create_entry(self, kind: EntryKind, name: str, body: Mapping[str, Any], by: Principal) -> StoredEntry:
        """Store a fresh entry. Raises: ConflictError where there is one of this name."""
        now_at = self._clock.wall_at().timestamp()
        with self._database.writing() as connection:
            values = {"body": _text(body), "version": 1, "created_at": now_at, "changed_at": now_at}
            try:
                connection.execute(TENANCY_ENTRIES.insert().values(kind=kind.value, name=name, **values))
            except IntegrityError as error:  # the key decides, not a look before: two may come at once
                raise ConflictError(f'{kind.value} "{name}" exists already') from error
            self._note(connection, by, f"{kind.value}.create", name, _tenant_of(kind, name), None, body)
            entry = _find_entry(connection, kind, name)
        assert entry is not None
        return entry

    def change_entry(
        self, kind: EntryKind, name: str, body: Mapping[str, Any], expected_version: int, by: Principal
    ) -> StoredEntry:
        """Replace an entry's body. Raises: ChangedMeanwhileError where it is no longer at `expected_version`."""
        with self._database.writing() as connection:
            before = _find_entry(connection, kind, name, for_update=True)
            if before is None or before.version != expected_version:
                found = 0 if before is None else before.version
                raise ChangedMeanwhileError(f'{kind.value} "{name}"', expected_version, found)
            if before.body == body:
                return before
            connection.execute(
                update(TENANCY_ENTRIES)
                .where(*_is_entry(kind, name))
                .values(body=_text(body), version=before.version + 1, changed_at=self._clock.wall_at().timestamp())
            )
            self._note(connection, by, f"{kind.value}.change", name, _tenant_of(kind, name), before.body, body)
            after = _find_entry(connection, kind, name)
        assert after is not None
        return after

    def delete_entry(self, kind: EntryKind, name: str, by: Principal) -> bool:
        """Forget an entry and its suspensions; False where there was none."""
        with self._database.writing() as connection:
            before = _find_entry(connection, kind, name, for_update=True)
            if before is None:
                return False
            connection.execute(delete(TENANCY_ENTRIES).where(*_is_entry(kind, name)))
            level = Level(kind.value)
            connection.execute(delete(SUSPENSIONS).where(*_is_suspension(level, name)))
            self._note(connection, by, f"{kind.value}.delete", name, _tenant_of(kind, name), before.body, None)
        return True

    def suspend(self, level: Level, name: str, reason: str, *, tenant: str | None, by: Principal) -> Suspension:
        """Refuse an organisation, tenant or project; doing it twice keeps the first time and the last reason."""
        with self._database.writing() as connection:
            count_change(connection, Watched.TENANCY)  # first, since it makes others who suspend wait for this one
            before = _find_suspension(connection, level, name)
            if before is None:
                connection.execute(
                    SUSPENSIONS.insert().values(
                        level=level.value, name=name, reason=reason, since_at=self._clock.wall_at().timestamp()
                    )
                )
            elif before.reason == reason:
                return before
            else:
                connection.execute(update(SUSPENSIONS).where(*_is_suspension(level, name)).values(reason=reason))
            after = _find_suspension(connection, level, name)
            self._note(connection, by, f"{level.value}.suspend", name, tenant, before, after)
        assert after is not None
        return after

    def resume(self, level: Level, name: str, *, tenant: str | None, by: Principal) -> bool:
        """Take requests again; False where it was not suspended."""
        with self._database.writing() as connection:
            before = _find_suspension(connection, level, name)
            if before is None:
                return False
            connection.execute(delete(SUSPENSIONS).where(*_is_suspension(level, name)))
            self._note(connection, by, f"{level.value}.resume", name, tenant, before, None)
        return True

    def _note(
        self,
        connection: Connection,
        by: Principal,
        action: str,
        name: str,
        tenant: str | None,
        before: Any,
        after: Any,
    ) -> None:
        change = AuditChange(action=action, name=name, tenant=tenant, before=before, after=after)
        append_audit(connection, by, change, self._clock.wall_at())
        count_change(connection, Watched.TENANCY)


_ENTRY_ORDER = (TENANCY_ENTRIES.c.kind, TENANCY_ENTRIES.c.created_at, TENANCY_ENTRIES.c.name)
_SUSPENSION_ORDER = (SUSPENSIONS.c.level, SUSPENSIONS.c.name)


def _is_entry(kind: EntryKind, name: str) -> tuple[Any, ...]:
    return TENANCY_ENTRIES.c.kind == kind.value, TENANCY_ENTRIES.c.name == name


def _is_suspension(level: Level, name: str) -> tuple[Any, ...]:
    return SUSPENSIONS.c.level == level.value, SUSPENSIONS.c.name == name


def _find_entry(connection: Connection, kind: EntryKind, name: str, *, for_update: bool = False) -> StoredEntry | None:
    query = select(TENANCY_ENTRIES).where(*_is_entry(kind, name))
    row = connection.execute(query.with_for_update() if for_update else query).mappings().one_or_none()
    return None if row is None else _read_entry(row)


def _find_suspension(connection: Connection, level: Level, name: str) -> Suspension | None:
    row = connection.execute(select(SUSPENSIONS).where(*_is_suspension(level, name))).mappings().one_or_none()
    return None if row is None else _read_suspension(row)


def _read_entry(row: RowMapping) -> StoredEntry:
    return StoredEntry(
        kind=EntryKind(row["kind"]),
        name=row["name"],
        body=msgspec.json.decode(row["body"]),
        version=row["version"],
        created_at=datetime.fromtimestamp(row["created_at"], tz=UTC),
        changed_at=datetime.fromtimestamp(row["changed_at"], tz=UTC),
    )


def _read_suspension(row: RowMapping) -> Suspension:
    return Suspension(
        level=Level(row["level"]),
        name=row["name"],
        reason=row["reason"],
        since_at=datetime.fromtimestamp(row["since_at"], tz=UTC),
    )


def _tenant_of(kind: EntryKind, name: str) -> str | None:
    return name if kind is EntryKind.TENANT else None


def _text(body: Mapping[str, Any]) -> str:
    return msgspec.json.encode(body).decode()
