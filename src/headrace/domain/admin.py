"""Who may steer: roles, their reach, and the principal behind each change. Counterpart: docs/tenants.md."""

from enum import StrEnum

import msgspec

from headrace.domain.ids import TenantId


class Role(StrEnum):
    """What an operator may do; each includes the ones before it."""

    VIEWER = "viewer"
    """Look."""
    OPERATOR = "operator"
    """Also keep things running: reload, restart, suspend, make and end keys for callers."""
    OWNER = "owner"
    """Also decide: tenants, limits, budgets, who is an operator."""

    @property
    def rank(self) -> int:
        return tuple(Role).index(self)

    def includes(self, other: "Role") -> bool:
        return self.rank >= other.rank


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A role, and how far it reaches."""

    role: Role
    tenant: TenantId | None = None
    """None: everywhere; else this tenant's own usage, requests, keys and audit log, and nothing else."""

    @property
    def is_global(self) -> bool:
        return self.tenant is None


class Channel(StrEnum):
    """Where a change came from."""

    API = "api"
    """The control API over TCP."""
    LOCAL = "local"
    """The instance's own Unix socket or the command line: the user who runs headrace."""
    FILE = "file"
    """A declaration that was edited and came into force."""
    ITSELF = "itself"
    """headrace, such as the keys of a first start."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks the control API or changes something."""

    subject: str
    """`key:<key id>`, `local:<user>`, the declaration's path, or `headrace`."""
    grant: Grant
    channel: Channel


OWNER_OF_ALL = Grant(role=Role.OWNER)
ITSELF = Principal(subject="headrace", grant=OWNER_OF_ALL, channel=Channel.ITSELF)
