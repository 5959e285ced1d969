"""Marks of budgets."""

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.budget_watch import BudgetWatch
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset


def test_each_mark_is_counted_when_it_is_passed_and_again_the_next_day() -> None:
    """80 and 100 percent, once each, however often somebody looks."""
    limit_id = LimitId(Level.TENANT, "t", Unit.BUDGET_PER_DAY)
    meter = LocalMeters(WallOffset(0.0, 0.0)).meter(limit_id, 100, 1000.0)
    watch = BudgetWatch()
    watch.adopt([meter])
    for used, expected in ((79, (0, 0)), (80, (1, 0)), (99, (1, 0)), (100, (1, 1)), (150, (1, 1))):
        meter.charge(used - meter.used(1000.0), 1000.0)
        for look in range(3):
            watch.look(1000.0 + used * 10 + look * 2)
        assert (watch.marks.get((limit_id, "0.8"), 0), watch.marks.get((limit_id, "1"), 0)) == expected
    watch.look(90_000.0)
    meter.charge(85, 90_000.0)
    watch.look(90_010.0)
    assert watch.marks == {(limit_id, "0.8"): 2, (limit_id, "1"): 1}
