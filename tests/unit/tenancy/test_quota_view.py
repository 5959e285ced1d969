"""Limits in the words of headrace.yaml, for whoever asks about whom."""

from datetime import UTC, datetime

import pytest

from headrace.declaration.model import Declaration
from headrace.domain.ids import TenantId
from headrace.domain.quota import MICROSECONDS, NANOS, Level, Unit
from headrace.domain.quota_status import LimitStatus, SlotsHere, merge_limits
from headrace.domain.tenant import Scope
from headrace.tenancy.keys import generate_key
from headrace.tenancy.quota_view import LimitFilter, view_limits

DECLARATION = Declaration.model_validate(
    {
        "models": {"m": {}},
        "pools": {"p": {"model": "m", "engine": "vllm", "endpoints": ["http://127.0.0.1:1"]}},
        "organisations": {"acme": {}, "globex": {}},
        "tenants": {"search": {"organisation": "acme", "projects": {"web": {}, "lab": {}}}, "ads": {}},
    }
)
_, KEY = generate_key(tenant=TenantId("search"), scope=Scope.INFERENCE, created_at=datetime.now(tz=UTC), project="web")
KEYS = {str(KEY.key_id): KEY}
NAMES = {
    (Level.KEY, str(KEY.key_id)),
    (Level.GATEWAY, ""),
    (Level.PROJECT, "search/web"),
    (Level.PROJECT, "search/lab"),
    (Level.TENANT, "search"),
    (Level.TENANT, "ads"),
    (Level.ORGANISATION, "acme"),
    (Level.ORGANISATION, "globex"),
}


def status(level: Level, name: str, unit: Unit = Unit.REQUESTS_PER_MIN, limit: int = 10, used: int = 4) -> LimitStatus:
    return LimitStatus(level=level, name=name, unit=unit, limit=limit, used=used, reset_s=1.0)


STATUSES = [status(*name) for name in NAMES]
ALL_OF_SEARCH = ["", "acme", "search", "search/lab", "search/web", KEY.key_id]


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (LimitFilter(tenant="search"), ALL_OF_SEARCH),
        (LimitFilter(tenant="search", is_scoped=True), ALL_OF_SEARCH[2:]),
        (LimitFilter(tenant="search", project="web"), ["", "acme", "search", "search/web", KEY.key_id]),
        (LimitFilter(tenant="search", project="lab"), ["", "acme", "search", "search/lab"]),
        (LimitFilter(key_id=str(KEY.key_id)), ["", "acme", "search", "search/web", KEY.key_id]),
        (LimitFilter(key_id=str(KEY.key_id), tenant="ads", is_scoped=True), []),
        (LimitFilter(key_id="unknown"), []),
        (LimitFilter(tenant="ads"), ["", "ads"]),
    ],
)
def test_what_holds_for_somebody_is_shown_from_the_widest_level_down(only, names):
    """The tenant's own levels and those above it; nothing of others."""
    assert [view.name for view in view_limits(STATUSES, DECLARATION, KEYS, only)] == names


def test_without_a_question_everything_is_shown():
    """All levels of all."""
    assert len(view_limits(STATUSES, DECLARATION, KEYS, LimitFilter())) == len(NAMES)


@pytest.mark.parametrize(
    ("unit", "measure", "name"),
    [
        (Unit.REQUESTS_PER_MIN, 1, "requests_per_min"),
        (Unit.GPU_SECONDS_PER_MIN, MICROSECONDS, "gpu_seconds_per_min"),
        (Unit.BUDGET_PER_MONTH, NANOS, "per_month"),
    ],
)
def test_amounts_are_shown_as_they_were_declared(unit, measure, name):
    """Seconds and money, not the quota's own measures."""
    [view] = view_limits([status(Level.TENANT, "ads", unit, 8 * measure, 2 * measure)], DECLARATION, {}, LimitFilter())
    assert (view.limit_name, view.limit, view.used, view.remaining, view.used_ratio) == (name, 8, 2, 6, 0.25)


def test_a_limit_of_zero_has_no_ratio_and_debt_leaves_nothing():
    """Neither a division by zero nor a negative rest."""
    zero, debt = view_limits(
        [status(Level.TENANT, "ads", limit=0, used=0), status(Level.TENANT, "search", limit=10, used=15)],
        DECLARATION,
        {},
        LimitFilter(),
    )
    assert (zero.used_ratio, debt.used_ratio, debt.remaining) == (None, 1.5, 0)


def test_of_several_workers_the_largest_figure_counts():
    """What is shared is not added up twice."""
    one, two = status(Level.TENANT, "ads", used=3), status(Level.TENANT, "ads", used=7)
    assert merge_limits([[one], [two], []]) == (two,)


def slots(in_use: int, held: int, held_by_others: int, told_s: float | None = 0.01) -> LimitStatus:
    """What one worker says of 10 slots of a tenant."""
    here = SlotsHere(in_use=in_use, held=held, held_by_others=held_by_others, told_s=told_s)
    used = in_use + held_by_others
    unit = Unit.CONCURRENT_REQUESTS
    return LimitStatus(level=Level.TENANT, name="ads", unit=unit, limit=10, used=used, reset_s=1.0, here=here)


@pytest.mark.parametrize(
    ("workers", "used", "leased"),
    [
        ([slots(2, 5, 4), slots(1, 4, 5)], 3, 6),
        ([slots(0, 1, 3), slots(0, 3, 1)], 0, 4),
        ([slots(2, 5, 0, told_s=None)], 2, 3),
        ([slots(5, 5, 5), slots(5, 5, 5)], 10, 0),
        ([slots(6, 5, 5), slots(5, 5, 5)], 11, 0),
    ],
    ids=["some in work", "idle", "alone so far", "all in work", "in debt"],
)
def test_slots_that_workers_hold_ready_are_not_used(workers: list[LimitStatus], used: int, leased: int) -> None:
    """Used is what is in work; what workers hold beside that moves to where requests are, and counts as left."""
    (view,) = view_limits(merge_limits([[one] for one in workers]), DECLARATION, {}, LimitFilter())
    assert (view.used, view.leased, view.remaining) == (used, leased, max(0, 10 - used))


def test_what_other_instances_hold_counts_whole() -> None:
    """Whether it is in use there nobody can tell here; the worker that was told last knows best how much it is."""
    (found,) = merge_limits([[slots(1, 2, 3, told_s=9.0)], [slots(0, 1, 6, told_s=0.1)]])
    assert (found.used, found.leased) == (1 + 4, 2)


def test_what_was_given_back_a_moment_ago_is_held_by_nobody() -> None:
    """One worker has given three back, and the other has not heard of it yet."""
    (found,) = merge_limits([[slots(1, 2, 5, told_s=0.01)], [slots(0, 2, 2, told_s=0.1)]])
    assert (found.used, found.leased) == (1, 3)


def test_a_worker_of_another_version_that_does_not_tell_is_believed_as_before() -> None:
    """While workers are replaced: the largest figure, and nothing of leases."""
    old = status(Level.TENANT, "ads", unit=Unit.CONCURRENT_REQUESTS, used=6)
    (found,) = merge_limits([[slots(1, 2, 4)], [old]])
    assert (found.used, found.leased, found.here) == (6, None, None)
