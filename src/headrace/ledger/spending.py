"""What has been spent in the present day and month, by every level, for budgets that survive a restart.

Days that are over are read once; the present one and the one before it (late records) at every look.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import func, select

from headrace.database.connect import Database
from headrace.database.tables import REQUESTS
from headrace.domain.calendar import DAY_S, day_of, month_of
from headrace.domain.quota import Level, Spent, Unit

Owner = tuple[Level, str]
Sums = dict[Owner, int]
"""Billionths of the currency, by level and name."""


class SpendingReader:
    """Sums costs of the table `requests`. Concurrency: one caller at a time, from any thread; blocks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closed: dict[float, Sums] = {}
        """Days of this month that no record can change any more, by their begin."""

    def read(self, now_at: float) -> tuple[Spent, ...]:
        """Everything that was spent this day and this month.

        Raises: DatabaseError.
        """
        today_at, month_at = day_of(now_at)[0], month_of(now_at)[0]
        self._closed = {day_at: sums for day_at, sums in self._closed.items() if day_at >= month_at}
        days: list[Sums] = []
        day_at = month_at
        while day_at <= today_at:
            sums = self._closed.get(day_at)
            if sums is None:
                sums = self._read_day(day_at)
                if day_at < today_at - DAY_S:
                    self._closed[day_at] = sums
            days.append(sums)
            day_at += DAY_S
        return tuple(
            Spent(level=level, name=name, unit=unit, nanos=nanos, period_start_at=start_at)
            for unit, start_at, sums in (
                (Unit.BUDGET_PER_DAY, today_at, days[-1]),
                (Unit.BUDGET_PER_MONTH, month_at, _added(days)),
            )
            for (level, name), nanos in sums.items()
        )

    def _read_day(self, day_at: float) -> Sums:
        columns = (REQUESTS.c.organisation, REQUESTS.c.tenant, REQUESTS.c.project, REQUESTS.c.key_id)
        query = (
            select(*columns, func.sum(REQUESTS.c.cost_nanos))
            .where(
                REQUESTS.c.received_at >= day_at,
                REQUESTS.c.received_at < day_at + DAY_S,
                REQUESTS.c.cost_nanos.is_not(None),
            )
            .group_by(*columns)
        )
        sums: defaultdict[Owner, int] = defaultdict(int)
        with self._database.reading() as connection:
            for organisation, tenant, project, key_id, nanos in connection.execute(query):
                for owner in _owners(organisation, tenant, project, key_id):
                    sums[owner] += int(nanos)
        return dict(sums)


def _owners(organisation: Any, tenant: Any, project: Any, key_id: Any) -> Iterator[Owner]:
    """Whose budgets a cost counts against."""
    yield Level.GATEWAY, ""
    if organisation is not None:
        yield Level.ORGANISATION, organisation
    if tenant is not None:
        yield Level.TENANT, tenant
        if project is not None:
            yield Level.PROJECT, f"{tenant}/{project}"
    if key_id is not None:
        yield Level.KEY, key_id


def _added(days: list[Sums]) -> Sums:
    total: defaultdict[Owner, int] = defaultdict(int)
    for sums in days:
        for owner, nanos in sums.items():
            total[owner] += nanos
    return dict(total)
