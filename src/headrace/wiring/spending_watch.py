"""Tells gateway workers what the ledger knows to have been spent, so that budgets survive their restart.

A worker counts by itself what it serves; this brings it what was spent before it began.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from headrace.database.url import DatabaseError
from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.clock import Clock
from headrace.domain.quota import BUDGETS, Level, LimitId, LimitSet, Spent
from headrace.domain.tenant import KeyRecord
from headrace.ledger.spending import SpendingReader

log = structlog.get_logger("headrace.supervisor")
LOOK_S = 1.0
"""How soon a budget that is declared anew is looked up."""
REFRESH_S = 30.0
"""Between two readings otherwise. Chosen: records that were late are known by then; a reading is of two days."""
SOON_S = 3.0
"""After a change, another reading: by then the journal of a worker that died is in the database."""


class SpendingWatch:
    """Reads while any budget is declared.

    Concurrency: one event loop; one look at a time; the database is asked in a thread.
    """

    def __init__(
        self,
        reader: SpendingReader,
        clock: Clock,
        situation: Callable[[], tuple[TenancyPlan, Iterable[KeyRecord], int]],
        tell: Callable[[tuple[Spent, ...]], Awaitable[None]],
    ) -> None:
        """`situation`: the plan, the keys, and how many workers had to be started again."""
        self._reader, self._clock, self._situation, self._tell = reader, clock, situation, tell
        self._seen: tuple[frozenset[LimitId], int] | None = None
        self._due_mono_s = 0.0
        self._looking = asyncio.Lock()

    async def look(self, coming: TenancyPlan | None = None) -> None:
        """Read and tell, where something has changed or enough time has passed. `coming`: a plan that is about to be in
        force, so that its budgets are known before they are.
        """
        async with self._looking:
            await self._look(coming)

    async def _look(self, coming: TenancyPlan | None) -> None:
        plan, keys, restarts = self._situation()
        budgets = frozenset(iter_budgets(plan, keys))
        if coming is not None:
            budgets |= frozenset(iter_budgets(coming, keys))
        now_mono_s = asyncio.get_running_loop().time()
        is_changed = (budgets, restarts) != self._seen
        if not budgets or (not is_changed and now_mono_s < self._due_mono_s):
            self._seen = (budgets, restarts) if not budgets else self._seen
            return
        try:
            spent = await asyncio.to_thread(self._reader.read, self._clock.wall_s())
        except DatabaseError as error:
            log.warning("what was spent cannot be read; budgets count from what is known", reason=str(error))
            self._due_mono_s = now_mono_s + REFRESH_S
            return
        self._seen = (budgets, restarts)
        self._due_mono_s = now_mono_s + (SOON_S if is_changed else REFRESH_S)
        await self._tell(tuple(one for one in spent if LimitId(one.level, one.name, one.unit) in budgets))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()


def iter_budgets(plan: TenancyPlan, keys: Iterable[KeyRecord]) -> Iterable[LimitId]:
    """All budgets that are declared, of keys too."""
    owners: list[tuple[Level, str, LimitSet]] = [(Level.GATEWAY, "", plan.limits)]
    owners += [(Level.ORGANISATION, one.name, one.limits) for one in plan.organisations]
    for tenant in plan.tenants:
        owners.append((Level.TENANT, tenant.name, tenant.allowance.limits))
        owners += [(Level.PROJECT, f"{tenant.name}/{one.name}", one.limits) for one in tenant.projects]
    owners += [(Level.KEY, key.key_id, key.limits) for key in keys if key.limits.amounts]
    for level, name, limits in owners:
        for unit in BUDGETS.intersection(limits.amounts):
            yield LimitId(level, name, unit)
