"""API keys in the database: create, list, revoke, expire. The hot path never comes here: it has a `keys.KeyRing`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import func, or_, select, update
from sqlalchemy.engine import RowMapping

from headrace.database.connect import Database
from headrace.database.tables import CHANGES, KEYS
from headrace.declaration.nearest import did_you_mean
from headrace.domain.clock import Clock
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.operator_error import OperatorError
from headrace.domain.quota import NO_LIMITS, LimitSet
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.keys import generate_key

_SUBJECT = "keys"


class KeyNotFoundError(OperatorError):
    """No key has this id."""


class KeyStore:
    """The keys of one instance.

    Concurrency: every call is one transaction and blocks on the database; safe from any thread.
    Raises: DatabaseError from every method where the database cannot be used.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def read_version(self) -> int:
        """A number that grows with every change to the keys: one cheap look-up for a poller."""
        with self._database.reading() as connection:
            return connection.execute(select(CHANGES.c.version).where(CHANGES.c.subject == _SUBJECT)).scalar_one()

    def list_keys(self, *, tenant: TenantId | None = None) -> tuple[KeyRecord, ...]:
        """All keys, revoked and expired ones too, oldest first."""
        query = select(KEYS).order_by(KEYS.c.created_at, KEYS.c.key_id)
        if tenant is not None:
            query = query.where(KEYS.c.tenant == tenant)
        with self._database.reading() as connection:
            return tuple(_read(row) for row in connection.execute(query).mappings())

    def list_usable_keys(self) -> tuple[KeyRecord, ...]:
        """The keys that may be used now: for `KeyRing` and the gateway workers."""
        now_at = self._clock.wall_at().timestamp()
        query = select(KEYS).where(
            KEYS.c.revoked_at.is_(None), or_(KEYS.c.expires_at.is_(None), KEYS.c.expires_at > now_at)
        )
        with self._database.reading() as connection:
            return tuple(_read(row) for row in connection.execute(query).mappings())

    def get_key(self, key_id: KeyId) -> KeyRecord:
        """Raises: KeyNotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(select(KEYS).where(KEYS.c.key_id == key_id)).mappings().one_or_none()
        if row is None:
            raise self._not_found(key_id)
        return _read(row)

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
    ) -> tuple[str, KeyRecord]:
        """Make a key and store its record; the clear text is returned this once and kept nowhere."""
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
            connection.execute(_COUNT_CHANGE)
        return clear_text, record

    def revoke_key(self, key_id: KeyId) -> KeyRecord:
        """End a key for ever; ending it twice keeps the first time.

        Raises: KeyNotFoundError.
        """
        at = self._clock.wall_at().timestamp()
        return self._change(key_id, {"revoked_at": func.coalesce(KEYS.c.revoked_at, at)})

    def expire_key(self, key_id: KeyId, expires_at: datetime | None) -> KeyRecord:
        """Set when a key ends by itself; None is never.

        Raises: KeyNotFoundError.
        """
        return self._change(key_id, {"expires_at": expires_at.timestamp() if expires_at else None})

    def limit_key(self, key_id: KeyId, limits: LimitSet) -> KeyRecord:
        """Replace a key's own limits and budgets.

        Raises: KeyNotFoundError.
        """
        return self._change(key_id, {"limits": _limits_text(limits)})

    def _change(self, key_id: KeyId, values: Mapping[str, Any]) -> KeyRecord:
        with self._database.writing() as connection:
            changed = connection.execute(update(KEYS).where(KEYS.c.key_id == key_id).values(values)).rowcount
            if changed:
                connection.execute(_COUNT_CHANGE)
        if not changed:
            raise self._not_found(key_id)
        return self.get_key(key_id)

    def _not_found(self, key_id: str) -> KeyNotFoundError:
        shown = key_id.removeprefix("hr-")[:10]  # never more: it might be a whole key
        known = [record.key_id for record in self.list_keys() if record.revoked_at is None]
        return KeyNotFoundError(f'there is no key with the id "{shown}"', hint=did_you_mean(shown, known))


_COUNT_CHANGE = update(CHANGES).where(CHANGES.c.subject == _SUBJECT).values(version=CHANGES.c.version + 1)


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
    )


def _limits_text(limits: LimitSet) -> str | None:
    return None if limits.is_empty else msgspec.json.encode(limits).decode()


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _moment(epoch: float | None) -> datetime | None:
    return None if epoch is None else datetime.fromtimestamp(epoch, tz=UTC)
