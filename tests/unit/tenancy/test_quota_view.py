"""Limits in the words of headrace.yaml, for whoever asks about whom."""

from datetime import UTC, datetime

import pytest

from headrace.declaration.model import Declaration
from headrace.domain.ids import TenantId
from headrace.domain.quota import MICROSECONDS, NANOS, Level, Unit
from headrace.domain.quota_status import LimitStatus, merge_limits
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
