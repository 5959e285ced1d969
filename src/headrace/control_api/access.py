"""Who may use a control route: every route declares it, and a request over TCP proves it with an admin key."""

import asyncio
from enum import StrEnum

from headrace.database.url import DatabaseError
from headrace.domain.admin import OWNER_OF_ALL, Channel, Grant, Principal, Role
from headrace.domain.clock import Clock
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.tenant import Scope
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.keys import KEY_LENGTH, KeyRing

_NONE_READ = -1


class Access(StrEnum):
    """What a route asks for."""

    PUBLIC = "public"
    """Anybody who can connect: probes and metrics, which hold no tenant's content."""
    VIEWER = "viewer"
    OPERATOR = "operator"
    OWNER = "owner"
    """An admin key of that role (see `domain.admin.Role`), or the instance's own Unix socket."""


LOCAL_USER = "local:"
"""Before the name of a user, in the audit log and as the client of a connection to the instance's own socket."""

NOBODY = Principal(subject="nobody", grant=Grant(role=Role.VIEWER), channel=Channel.API)
"""Behind public routes, which never look."""


def local_owner(client: str | None) -> Principal:
    """Whoever can open the instance's own Unix socket: its user, or root."""
    subject = client if client is not None and client.startswith(LOCAL_USER) else "local"
    return Principal(subject=subject, grant=OWNER_OF_ALL, channel=Channel.LOCAL)


class AdminGate:
    """Recognises admin keys, seeing every change to the keys at the next request.

    Concurrency: the supervisor's event loop; the database is asked in a thread.
    """

    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._ring = KeyRing()
        self._version = _NONE_READ

    async def identify(self, authorization: str | None) -> Principal:
        """Who has the admin key in an `Authorization` header, and what it may do.

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
        if record.suspended_at is not None:
            raise RequestError(ErrorCode.SUSPENDED, f"key {record.key_id} is suspended; ask an owner")
        if record.grant is None:
            raise RequestError(ErrorCode.FORBIDDEN, f"key {record.key_id} has no role; make another one")
        return Principal(subject=f"key:{record.key_id}", grant=record.grant, channel=Channel.API)

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


def check_access(access: Access, *, is_scoped: bool, principal: Principal) -> None:
    """Let `principal` through, or say what is missing. `is_scoped`: the route shows a tenant its own part.

    Raises: RequestError FORBIDDEN; for a role scoped to a tenant the text is the same for every route it may not use.
    """
    if access is Access.PUBLIC:
        return
    if principal.grant.tenant is not None and not is_scoped:
        raise RequestError(ErrorCode.FORBIDDEN, "this is not for a role that is scoped to one tenant")
    if not principal.grant.role.includes(Role(access.value)):
        message = f"this needs the role {access.value}; {principal.subject} has {principal.grant.role.value}"
        raise RequestError(ErrorCode.FORBIDDEN, message)
