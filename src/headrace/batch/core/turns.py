"""Which batch begins next: of the tenant with the fewest that run; among those, the one that has waited longest."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RUNNING_MOST = 16
"""Batches that run side by side; each holds a file open and a few lines. Chosen."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A batch that could run."""

    batch_id: str
    tenant: str
    created_at: float


def choose_next(waiting: Sequence[Waiting], running_tenants: Iterable[str]) -> Waiting | None:
    """Return the batch to begin, or None where none waits or enough run."""
    running = Counter(running_tenants)
    if not waiting or running.total() >= RUNNING_MOST:
        return None
    return min(waiting, key=lambda one: (running[one.tenant], one.created_at, one.batch_id))
