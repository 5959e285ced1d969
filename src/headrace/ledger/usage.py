"""Who used how much: sums and percentiles over the table `requests`, for `headrace usage` and the control API.

Requests for inference are summed up. Lists of models, files and batches, and paths that do not exist use no model: they
are in the ledger, too, and counted apart.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Integer, case, cast, func, or_, select

from headrace.database.connect import Database
from headrace.database.tables import REQUESTS
from headrace.domain.errors import Outcome
from headrace.domain.quantiles import nearest_rank

DAY_S = 86400
_READ_ROWS = 10_000
IS_INFERENCE = REQUESTS.c.dialect.is_not(None)
"""It came to a path where models answer, whatever became of it."""
MODEL: ColumnElement[Any] = func.coalesce(REQUESTS.c.chosen_model, REQUESTS.c.requested_model)
"""The model that answered; for who was refused before there was one, what was asked for."""


class UsageGroup(StrEnum):
    """What usage may be grouped by."""

    ORGANISATION = "organisation"
    TENANT = "tenant"
    PROJECT = "project"
    KEY = "key"
    MODEL = "model"
    ENDPOINT = "endpoint"
    CLASS = "class"
    DAY = "day"


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are summed up; None: all."""

    tenant: str | None = None
    project: str | None = None
    model: str | None = None
    key_id: str | None = None

    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """As SQL."""
        wanted = (
            (REQUESTS.c.tenant, self.tenant),
            (REQUESTS.c.project, self.project),
            (REQUESTS.c.key_id, self.key_id),
        )
        found = tuple(column == value for column, value in wanted if value is not None)
        if self.model is None:
            return found
        return (*found, or_(REQUESTS.c.requested_model == self.model, REQUESTS.c.chosen_model == self.model))


EVERYTHING = UsageFilter()


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests that have the value; observer: gateway. Nearest rank: each is a value that was measured."""

    p50_s: float
    p99_s: float
    measured: int
    """How many requests have the value."""


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group's requests. None is "not measured" or, in `groups`, "not known" (refused before it was)."""

    groups: tuple[str | None, ...]
    """What the row is about, in the order of `UsageReport.by`; empty for the total."""
    requests: int
    completed: int
    rejected: int
    evicted: int
    failed: int
    cancelled: int
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    ttft: Percentiles | None
    e2e: Percentiles | None
    gpu_s: float | None = None
    """Attributed GPU time, of the requests for which the pool's speed is known."""
    cost_nanos: int | None = None
    """Billionths of the price table's currency, of the requests whose model has a price."""
    other_requests: int = 0
    """Besides `requests`: for lists of models, files and batches, and what was no API. No other number has them."""


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one stretch of time, by arrival of the requests."""

    since_at: float
    until_at: float
    by: tuple[UsageGroup, ...]
    rows: tuple[UsageRow, ...]
    """Of groups that asked for inference."""
    total: UsageRow
    """Its `other_requests` are those of the other groups as well."""


def read_usage(
    database: Database,
    *,
    since_at: float,
    until_at: float,
    by: tuple[UsageGroup, ...],
    only: UsageFilter = EVERYTHING,
) -> UsageReport:
    """Sum up what arrived from `since_at` up to before `until_at` (UTC epoch seconds).

    Raises: DatabaseError.
    """
    columns = [_group_column(group, is_sqlite=database.url.is_sqlite) for group in by]
    within = (REQUESTS.c.received_at >= since_at, REQUESTS.c.received_at < until_at, *only.conditions())
    sums = select(*columns, *_SUMS).where(*within).group_by(*columns).order_by(*columns)
    times = select(*columns, REQUESTS.c.ttft_s, REQUESTS.c.e2e_s).where(IS_INFERENCE, *within)
    ttft_s: defaultdict[Any, array[float]] = defaultdict(lambda: array("d"))
    e2e_s: defaultdict[Any, array[float]] = defaultdict(lambda: array("d"))
    with database.reading() as connection:
        summed = connection.execute(sums).all()
        for row in connection.execution_options(yield_per=_READ_ROWS).execute(times):
            *group, ttft, e2e = tuple[Any, ...](row)
            key = tuple(group)
            if ttft is not None:
                ttft_s[key].append(ttft)
            if e2e is not None:
                e2e_s[key].append(e2e)
    rows: list[UsageRow] = []
    for values in summed:
        key = tuple(values[: len(by)])
        names = tuple(_group_name(group, one) for group, one in zip(by, key, strict=True))
        rows.append(_usage_row(names, values[len(by) :], percentiles(ttft_s[key]), percentiles(e2e_s[key])))
    total = _total(rows, ttft_s.values(), e2e_s.values())
    return UsageReport(
        since_at=since_at,
        until_at=until_at,
        by=by,
        rows=tuple(row for row in rows if row.requests),
        total=total,
    )


def percentiles(values_s: Sequence[float]) -> Percentiles | None:
    """Median and 99th percentile of `values_s`; None where nothing was measured."""
    ordered = sorted(values_s)
    p50_s, p99_s = nearest_rank(ordered, 0.5), nearest_rank(ordered, 0.99)
    return None if p50_s is None or p99_s is None else Percentiles(p50_s=p50_s, p99_s=p99_s, measured=len(ordered))


_SUMS: tuple[ColumnElement[Any], ...] = (
    func.count(REQUESTS.c.dialect),
    func.sum(case((IS_INFERENCE, 0), else_=1)),
    *(func.sum(case((IS_INFERENCE & (REQUESTS.c.outcome == outcome.value), 1), else_=0)) for outcome in Outcome),
    func.sum(REQUESTS.c.input_tokens),
    func.sum(REQUESTS.c.cached_input_tokens),
    func.sum(REQUESTS.c.output_tokens),
    func.sum(REQUESTS.c.gpu_s),
    func.sum(REQUESTS.c.cost_nanos),
)


def _group_column(by: UsageGroup, *, is_sqlite: bool) -> ColumnElement[Any]:
    columns: dict[UsageGroup, ColumnElement[Any]] = {
        UsageGroup.ORGANISATION: REQUESTS.c.organisation,
        UsageGroup.TENANT: REQUESTS.c.tenant,
        UsageGroup.PROJECT: REQUESTS.c.project,
        UsageGroup.CLASS: REQUESTS.c.request_class,
        UsageGroup.MODEL: MODEL,
        UsageGroup.KEY: REQUESTS.c.key_id,
        UsageGroup.ENDPOINT: REQUESTS.c.endpoint,
    }
    if by is not UsageGroup.DAY:
        return columns[by]
    days = REQUESTS.c.received_at / DAY_S
    return cast(days if is_sqlite else func.floor(days), Integer)  # SQLite's cast cuts off, PostgreSQL's rounds


def _group_name(by: UsageGroup, key: Any) -> str | None:
    if by is UsageGroup.DAY:
        return datetime.fromtimestamp(key * DAY_S, tz=UTC).date().isoformat()
    return key


def _usage_row(
    groups: tuple[str | None, ...], values: Sequence[Any], ttft: Percentiles | None, e2e: Percentiles | None
) -> UsageRow:
    """`values` in the order of _SUMS; PostgreSQL gives sums of integers as decimals."""
    requests, others, completed, rejected, evicted, failed, cancelled = map(int, values[:7])
    input_tokens, cached_input_tokens, output_tokens = (None if one is None else int(one) for one in values[7:10])
    gpu_s, cost_nanos = values[10:]
    return UsageRow(
        groups=groups,
        requests=requests,
        completed=completed,
        rejected=rejected,
        evicted=evicted,
        failed=failed,
        cancelled=cancelled,
        input_tokens=input_tokens,
        cached_input_tokens=cached_input_tokens,
        output_tokens=output_tokens,
        ttft=ttft,
        e2e=e2e,
        gpu_s=gpu_s,
        cost_nanos=None if cost_nanos is None else int(cost_nanos),
        other_requests=others,
    )


def _total(rows: Sequence[UsageRow], ttft_s: Iterable["array[float]"], e2e_s: Iterable["array[float]"]) -> UsageRow:
    return UsageRow(
        groups=(),
        requests=sum(row.requests for row in rows),
        completed=sum(row.completed for row in rows),
        rejected=sum(row.rejected for row in rows),
        evicted=sum(row.evicted for row in rows),
        failed=sum(row.failed for row in rows),
        cancelled=sum(row.cancelled for row in rows),
        input_tokens=_sum_measured(row.input_tokens for row in rows),
        cached_input_tokens=_sum_measured(row.cached_input_tokens for row in rows),
        output_tokens=_sum_measured(row.output_tokens for row in rows),
        ttft=percentiles(array("d", chain.from_iterable(ttft_s))),
        e2e=percentiles(array("d", chain.from_iterable(e2e_s))),
        gpu_s=_sum_seconds(row.gpu_s for row in rows),
        cost_nanos=_sum_measured(row.cost_nanos for row in rows),
        other_requests=sum(row.other_requests for row in rows),
    )


def _sum_measured(values: Iterable[int | None]) -> int | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def _sum_seconds(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return math.fsum(measured) if measured else None
