"""What a gateway worker needs to share limits with others: a part of the gateway plan."""

from enum import StrEnum

import msgspec

from headrace.declaration.model import Gateway


class SharedThrough(StrEnum):
    """Where the shared book is."""

    NOTHING = "nothing"
    """One process: limits are its own, and exact."""
    COORDINATOR = "coordinator"
    """In the supervisor, behind a Unix socket."""
    REDIS = "redis"


class SharingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.sharing`, with the store that follows from it."""

    through: SharedThrough = SharedThrough.NOTHING
    redis: str | None = None
    namespace: str = "default"
    member_s: float = 5.0
    timeout_s: float = 0.5
    is_open: bool = True
    """What holds while the store is lost."""


def compile_sharing(gateway: Gateway) -> SharingPlan:
    """Redis where it is declared; else the coordinator where there are several workers."""
    sharing = gateway.sharing
    through = SharedThrough.COORDINATOR if gateway.workers > 1 else SharedThrough.NOTHING
    return SharingPlan(
        through=SharedThrough.REDIS if sharing.redis is not None else through,
        redis=sharing.redis,
        namespace=sharing.namespace,
        member_s=sharing.member_s,
        timeout_s=sharing.timeout_s,
        is_open=sharing.on_store_loss == "open",
    )
