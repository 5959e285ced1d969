"""Shares the machine's cores between the pools that headrace runs: declared numbers first, the rest in equal parts."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engines.threads import share_threads


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDemand:
    """One pool's replicas."""

    replicas: int
    threads: int | None
    """Declared for each replica; None: an equal share of what is left."""


class TooManyThreadsError(Exception):
    """The pools declare more threads than the machine has; the message has both numbers."""


def allot_threads(machine_threads: int, demands: Mapping[str, ThreadDemand]) -> dict[str, int]:
    """Give threads per replica, by pool. The sum stays within the machine, but every replica gets at least one.

    Raises: TooManyThreadsError.
    """
    asked = sum(demand.replicas * demand.threads for demand in demands.values() if demand.threads is not None)
    if asked > machine_threads:
        raise TooManyThreadsError(
            f"pools declare {asked} threads in sum (threads x replicas), but this machine has {machine_threads} cores"
        )
    sharers = sum(demand.replicas for demand in demands.values() if demand.threads is None)
    share = share_threads(machine_threads - asked, sharers)
    return {name: share if demand.threads is None else demand.threads for name, demand in demands.items()}
