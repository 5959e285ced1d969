"""API keys in the database: create, list, change, suspend, end; each with its line in the audit log.

The hot path never comes here: it has a `keys.KeyRing`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, or_, select, update
from sqlalchemy.engine import RowMapping

from headrace.database.change_counter import Watched, count_change, read_changes
from headrace.database.connect import Database
from headrace.database.tables import ADMIN_GRANTS, KEYS
from headrace.declaration.nearest import did_you_mean
from headrace.domain.admin import ITSELF, OWNER_OF_ALL, Grant, Principal, Role
from headrace.domain.clock import Clock
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.operator_error import UnknownNameError
from headrace.domain.quota import NO_LIMITS, LimitSet
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.audit import AuditChange, append_audit
from headrace.tenancy.conflict import ChangedMeanwhileError
from headrace.tenancy.key_view import view_key
from headrace.tenancy.keys import generate_key

ENDED_S = 30 * 86400.0
"""Keys that were revoked or expired so lately are still recognised, to say whose a refused request is. Chosen."""


class KeyNotFoundError(UnknownNameError):
    """No key has this id."""


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different about a key; what is not set stays as it is."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    allowed_models: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET
    expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    project: str | msgspec.UnsetType | None = msgspec.UNSET
    limits: LimitSet | msgspec.UnsetType = msgspec.UNSET


class KeyStore:
    """The keys of one instance.

    `by` is who wants it, for the audit log, which is written in the transaction of the change.

    Concurrency: every call is one transaction and blocks on the database; safe from any thread.
    Raises: DatabaseError from every method where the database cannot be used.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # --- look

    def read_version(self) -> int:
        """A number that grows with every change to the keys: one cheap look-up for a poller."""
        return read_changes(self._database, Watched.KEYS)

    def list_keys(self, *, tenant: TenantId | None = None) -> tuple[KeyRecord, ...]:
        """All keys, revoked and expired ones too, oldest first."""
        query = select(KEYS).order_by(KEYS.c.created_at, KEYS.c.key_id)
        if tenant is not None:
            query = query.where(KEYS.c.tenant == tenant)
        with self._database.reading() as connection:
            return tuple(_read(row) for row in connection.execute(query).mappings())

    def list_usable_keys(self) -> tuple[KeyRecord, ...]:
        """The keys that may be used now, those of operators with their grants; suspended ones, too, whose refusal says
        so. For `KeyRing`.
        """
        now_at = self._clock.wall_at().timestamp()
        query = select(KEYS).where(
            KEYS.c.revoked_at.is_(None), or_(KEYS.c.expires_at.is_(None), KEYS.c.expires_at > now_at)
        )
        with self._database.reading() as connection:
            records = [_read(row) for row in connection.execute(query).mappings()]
            grants = _read_grants(connection)
        return tuple(
            msgspec.structs.replace(record, grant=grants.get(record.key_id)) if record.scope is Scope.ADMIN else record
            for record in records
        )

    def list_known_keys(self) -> tuple[KeyRecord, ...]:
        """Those that may be used, and those that ended in the last ENDED_S: they open nothing, but whoever
        goes on sending one is known. For `KeyRing`."""
        since_at = self._clock.wall_at().timestamp() - ENDED_S
        is_late = or_(KEYS.c.revoked_at > since_at, KEYS.c.expires_at > since_at)
        query = select(KEYS).where(or_(KEYS.c.revoked_at.is_not(None), KEYS.c.expires_at.is_not(None)), is_late)
        usable = self.list_usable_keys()
        known = {record.key_id for record in usable}
        with self._database.reading() as connection:
            ended = [_read(row) for row in connection.execute(query).mappings()]
        return (*usable, *(record for record in ended if record.key_id not in known))

    def get_key(self, key_id: KeyId) -> KeyRecord:
        """Raises: KeyNotFoundError."""
        with self._database.reading() as connection:
            record = _find(connection, key_id)
        if record is None:
            raise self._not_found(key_id)
        return record

    def read_grants(self) -> dict[KeyId, Grant]:
        """What each admin key may do. A key without an entry may do nothing."""
        with self._database.reading() as connection:
            return _read_grants(connection)

    # --- change

    def create_key(
        self,
        *,
        tenant: TenantId,
        scope: Scope,
        name: str = "",
        allowed_models: tuple[str, ...] | None = None,
        expires_at: datetime | None = None,
        project: str | None = None,
        limits: LimitSet = NO_LIMITS,
        grant: Grant = OWNER_OF_ALL,
        by: Principal = ITSELF,
    ) -> tuple[str, KeyRecord]:
        """Make a key and store its record; the clear text is returned this once and kept nowhere.

        `grant`: what an admin key may do.
        """
        clear_text, record = generate_key(
            tenant=tenant,
            scope=scope,
            created_at=self._clock.wall_at(),
            name=name,
            allowed_models=allowed_models,
            expires_at=expires_at,
            project=project,
            limits=limits,
        )
        with self._database.writing() as connection:
            connection.execute(KEYS.insert().values(_row(record)))
            if scope is Scope.ADMIN:
                connection.execute(ADMIN_GRANTS.insert().values(_grant_row(record, grant)))
            self._note(connection, by, "key.create", None, record)
        return clear_text, record

    def revoke_key(self, key_id: KeyId, *, by: Principal = ITSELF) -> KeyRecord:
        """End a key for ever; ending it twice keeps the first time.

        Raises: KeyNotFoundError.
        """

        def revoked(record: KeyRecord) -> Mapping[str, Any]:
            return {} if record.revoked_at is not None else {"revoked_at": self._clock.wall_at().timestamp()}

        return self._change(key_id, "key.revoke", revoked, by)

    def expire_key(self, key_id: KeyId, expires_at: datetime | None, *, by: Principal = ITSELF) -> KeyRecord:
        """Set when a key ends by itself; None is never.

        Raises: KeyNotFoundError.
        """
        return self.change_key(key_id, KeyChange(expires_at=expires_at), by=by)

    def limit_key(self, key_id: KeyId, limits: LimitSet, *, by: Principal = ITSELF) -> KeyRecord:
        """Replace a key's own limits and budgets.

        Raises: KeyNotFoundError.
        """
        return self.change_key(key_id, KeyChange(limits=limits), by=by)

    def change_key(
        self, key_id: KeyId, change: KeyChange, *, expected_version: int | None = None, by: Principal = ITSELF
    ) -> KeyRecord:
        """Change what a key may do. `expected_version`: of the record that the wish was made from.

        Raises: KeyNotFoundError, ChangedMeanwhileError.
        """

        def changed(record: KeyRecord) -> Mapping[str, Any]:
            if expected_version is not None and record.version != expected_version:
                raise ChangedMeanwhileError(f"key {key_id}", expected_version, record.version)
            given = {name: one for name, one in msgspec.structs.asdict(change).items() if one is not msgspec.UNSET}
            wanted = msgspec.structs.replace(record, **given)
            before, after = _row(record), _row(wanted)
            return {column: value for column, value in after.items() if value != before[column]}

        return self._change(key_id, "key.change", changed, by)

    def suspend_key(self, key_id: KeyId, *, by: Principal = ITSELF) -> KeyRecord:
        """Refuse a key until it is resumed; suspending it twice keeps the first time.

        Raises: KeyNotFoundError.
        """

        def suspended(record: KeyRecord) -> Mapping[str, Any]:
            return {} if record.suspended_at is not None else {"suspended_at": self._clock.wall_at().timestamp()}

        return self._change(key_id, "key.suspend", suspended, by)

    def resume_key(self, key_id: KeyId, *, by: Principal = ITSELF) -> KeyRecord:
        """Take a suspended key again.

        Raises: KeyNotFoundError.
        """

        def resumed(record: KeyRecord) -> Mapping[str, Any]:
            return {} if record.suspended_at is None else {"suspended_at": None}

        return self._change(key_id, "key.resume", resumed, by)

    # --- inside

    def _change(
        self, key_id: KeyId, action: str, make: Callable[[KeyRecord], Mapping[str, Any]], by: Principal
    ) -> KeyRecord:
        """Read, decide and write in one transaction; a change that changes nothing leaves no trace."""
        with self._database.writing() as connection:
            before = _find(connection, key_id, for_update=True)
            values: Mapping[str, Any] = {} if before is None else make(before)
            if before is not None and values:
                version = before.version + 1
                connection.execute(update(KEYS).where(KEYS.c.key_id == key_id).values({**values, "version": version}))
                after = _find(connection, key_id)
                assert after is not None
                self._note(connection, by, action, before, after)
                return after
        if before is None:
            raise self._not_found(key_id)
        return before

    def _note(
        self, connection: Connection, by: Principal, action: str, before: KeyRecord | None, after: KeyRecord
    ) -> None:
        now = self._clock.wall_at()
        grant = _read_grants(connection).get(after.key_id) if after.scope is Scope.ADMIN else None
        # What reaches further than one tenant is no business of that tenant's operators.
        tenant = after.tenant if after.scope is not Scope.ADMIN else None if grant is None else grant.tenant
        change = AuditChange(
            action=action,
            name=after.key_id,
            tenant=tenant,
            before=None if before is None else view_key(before, now, grant),
            after=view_key(after, now, grant),
        )
        append_audit(connection, by, change, now)
        count_change(connection, Watched.KEYS)

    def _not_found(self, key_id: str) -> KeyNotFoundError:
        shown = key_id.removeprefix("hr-")[:10]  # never more: it might be a whole key
        known = [record.key_id for record in self.list_keys() if record.revoked_at is None]
        return KeyNotFoundError(f'there is no key with the id "{shown}"', hint=did_you_mean(shown, known))


def _find(connection: Connection, key_id: KeyId, *, for_update: bool = False) -> KeyRecord | None:
    query = select(KEYS).where(KEYS.c.key_id == key_id)
    row = connection.execute(query.with_for_update() if for_update else query).mappings().one_or_none()
    return None if row is None else _read(row)


def _grant_row(record: KeyRecord, grant: Grant) -> dict[str, object]:
    return {
        "subject": f"key:{record.key_id}",
        "role": grant.role.value,
        "tenant": grant.tenant,
        "created_at": record.created_at.timestamp(),
    }


def _read_grants(connection: Connection) -> dict[KeyId, Grant]:
    rows = connection.execute(select(ADMIN_GRANTS)).mappings()
    return {KeyId(row["subject"].removeprefix("key:")): _read_grant(row) for row in rows}


def _read_grant(row: RowMapping) -> Grant:
    return Grant(role=Role(row["role"]), tenant=None if row["tenant"] is None else TenantId(row["tenant"]))


def _row(record: KeyRecord) -> dict[str, object]:
    models = record.allowed_models
    return {
        "key_id": record.key_id,
        "secret_sha256": record.secret_sha256,
        "tenant": record.tenant,
        "scope": record.scope.value,
        "name": record.name,
        "allowed_models": None if models is None else msgspec.json.encode(models).decode(),
        "created_at": record.created_at.timestamp(),
        "expires_at": _epoch(record.expires_at),
        "revoked_at": _epoch(record.revoked_at),
        "project": record.project,
        "limits": _limits_text(record.limits),
        "suspended_at": _epoch(record.suspended_at),
        "version": record.version,
    }


def _read(row: RowMapping) -> KeyRecord:
    models = row["allowed_models"]
    return KeyRecord(
        key_id=KeyId(row["key_id"]),
        secret_sha256=bytes(row["secret_sha256"]),
        tenant=TenantId(row["tenant"]),
        scope=Scope(row["scope"]),
        name=row["name"],
        allowed_models=None if models is None else msgspec.json.decode(models, type=tuple[str, ...]),
        created_at=datetime.fromtimestamp(row["created_at"], tz=UTC),
        expires_at=_moment(row["expires_at"]),
        revoked_at=_moment(row["revoked_at"]),
        project=row["project"],
        limits=NO_LIMITS if row["limits"] is None else msgspec.json.decode(row["limits"], type=LimitSet),
        suspended_at=_moment(row["suspended_at"]),
        version=row["version"],
    )


def _limits_text(limits: LimitSet) -> str | None:
    return None if limits.is_empty else msgspec.json.encode(limits).decode()


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _moment(epoch: float | None) -> datetime | None:
    return None if epoch is None else datetime.fromtimestamp(epoch, tz=UTC)
