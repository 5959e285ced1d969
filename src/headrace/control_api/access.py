"""Who may use a control route: every route declares it, and a request over TCP proves it with an admin key."""

import asyncio
from enum import StrEnum

from headrace.database.url import DatabaseError
from headrace.domain.clock import Clock
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.keys import KEY_LENGTH, KeyRing

_NONE_READ = -1


class Access(StrEnum):
    """What a route asks for."""

    PUBLIC = "public"
    """Anybody who can connect: probes and metrics, which hold no tenant's content."""
    ADMIN = "admin"
    """An admin key, or the instance's own Unix socket."""


class AdminGate:
    """Recognises admin keys, seeing every change to the keys at the next request.

    Concurrency: the supervisor's event loop; the database is asked in a thread.
    """

    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._ring = KeyRing()
        self._version = _NONE_READ

    async def identify(self, authorization: str | None) -> KeyRecord:
        """The admin key in an `Authorization` header.

        Raises: RequestError.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or len(token) != KEY_LENGTH or not token.isascii():
            raise RequestError(
                ErrorCode.UNAUTHENTICATED,
                "the control API needs an admin key: Authorization: Bearer hr-... (headrace keys create --scope admin)",
            )
        await asyncio.to_thread(self._refresh)
        record = self._ring.find(token.encode("ascii"), self._clock.wall_at().timestamp())
        if record is None:
            raise RequestError(ErrorCode.UNAUTHENTICATED, "the key is unknown, revoked or expired")
        if record.scope is not Scope.ADMIN:
            raise RequestError(ErrorCode.FORBIDDEN, f"key {record.key_id} has scope {record.scope}; this needs admin")
        return record

    def _refresh(self) -> None:
        """Read the keys again if they changed; with the database away, those last read go on counting."""
        try:
            version = self._store.read_version()
            if version != self._version:
                self._ring = KeyRing(self._store.list_usable_keys())
                self._version = version
        except DatabaseError:
            if self._version == _NONE_READ:
                raise
