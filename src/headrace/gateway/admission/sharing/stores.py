"""Which store a plan's sharing asks for."""

from pathlib import Path

from headrace.declaration.sharing_plan import SharedThrough, SharingPlan
from headrace.extras import Extra, install_hint, missing_text
from headrace.gateway.admission.core.local_meters import WallOffset
from headrace.gateway.admission.sharing.keeper import LeaseKeeper
from headrace.tenancy.leases.unix_store import UnixStore

MEMBERS_FILE = "sharing-members"
"""Beside the coordinator's socket: how many processes shared through Redis when it answered last."""
NEVER_S = float("inf")
"""The coordinator does not take silence for death: it sees the connection close."""


COORDINATOR_S = 2.0
"""Least time for the coordinator to answer: its end is seen at once, and only a busy machine makes it late."""


class SharingUnavailableError(Exception):
    """The declared store cannot be used by this installation; the text says what is missing."""


def open_keeper(
    plan: SharingPlan, leases_socket: Path, *, workers: int = 1, wall: WallOffset | None = None
) -> LeaseKeeper | None:
    """The keeper of the share of one of so many workers; None where nothing is shared.

    Raises: SharingUnavailableError.
    """
    if plan.through is SharedThrough.NOTHING:
        return None
    if plan.through is SharedThrough.COORDINATOR:
        store = UnixStore(leases_socket, timeout_s=max(plan.timeout_s, COORDINATOR_S))
        return LeaseKeeper(store, is_open=plan.is_open, member_s=NEVER_S, workers=workers, wall=wall)
    assert plan.redis is not None
    try:
        from headrace.tenancy.leases.redis_store import RedisStore
    except ImportError as error:
        missing = missing_text("gateway.sharing.redis", Extra.REDIS)
        raise SharingUnavailableError(f"{missing}. {install_hint(Extra.REDIS)}") from error
    try:
        redis = RedisStore(plan.redis, namespace=plan.namespace, member_s=plan.member_s, timeout_s=plan.timeout_s)
    except ValueError as error:
        raise SharingUnavailableError(f"gateway.sharing.redis is no usable URL: {error}") from error
    return LeaseKeeper(
        redis,
        is_open=plan.is_open,
        member_s=plan.member_s,
        workers=workers,
        members_file=leases_socket.with_name(MEMBERS_FILE),
        wall=wall,
    )
