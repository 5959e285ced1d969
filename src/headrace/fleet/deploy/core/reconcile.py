"""Which replicas to start, keep and end, given what is declared and what runs. Pure.

The rule: a replica whose shape is still wanted stays. Every other wanted one is started beside what runs, under the
lowest free number; what is not wanted is drained only when the new ones of its pool are ready (or there are none).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Generic[Shape]):
    """One replica that exists and is not on its way out."""

    pool: str
    number: int
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(Generic[Shape]):
    """What one pool should be."""

    count: int
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Generic[Shape]):
    """What to do for one pool."""

    pool: str
    start: tuple[Running[Shape], ...]
    keep: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def is_replacement(self) -> bool:
        """What ends must wait for what starts."""
        return bool(self.start and self.end)


def reconcile(
    wanted: Mapping[str, Wanted[Shape]],
    running: Sequence[Running[Shape]],
    *,
    taken: Mapping[str, frozenset[int]],
    preferred: Mapping[str, Sequence[int]],
) -> list[Steps[Shape]]:
    """Compare.

    `taken` are numbers in use by replicas on their way out; `preferred` numbers are tried first (engines that an
    earlier supervisor left running).
    """
    pools = [*wanted, *sorted({replica.pool for replica in running} - set(wanted))]
    return [
        _reconcile_pool(
            pool,
            wanted.get(pool),
            [replica for replica in running if replica.pool == pool],
            taken.get(pool, frozenset()),
            preferred.get(pool, ()),
        )
        for pool in pools
    ]


def _reconcile_pool(
    pool: str,
    wanted: Wanted[Shape] | None,
    running: Sequence[Running[Shape]],
    taken: frozenset[int],
    preferred: Sequence[int],
) -> Steps[Shape]:
    count = wanted.count if wanted else 0
    fitting = sorted(replica.number for replica in running if wanted and replica.shape == wanted.shape)
    keep, surplus = fitting[:count], fitting[count:]
    end = sorted([*surplus, *(replica.number for replica in running if replica.number not in fitting)])
    used = taken | set(keep) | set(end)
    start: list[Running[Shape]] = []
    choices = [number for number in preferred if number not in used]
    number = 0
    while wanted and len(start) < count - len(keep):
        if choices:
            chosen = choices.pop(0)
        else:
            while number in used:
                number += 1
            chosen = number
        used = used | {chosen}
        start.append(Running(pool=pool, number=chosen, shape=wanted.shape))
    return Steps(pool=pool, start=tuple(start), keep=tuple(keep), end=tuple(end))
