"""When the ledger is asked what was spent, and what workers are told."""

from tests.harness.running_gateway import new_key

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.tables import REQUESTS
from headrace.declaration.model import Declaration
from headrace.declaration.tenancy_plan import TenancyPlan, compile_tenancy_plan
from headrace.domain.clock import SystemClock
from headrace.domain.quota import Level, LimitSet, Spent, Unit
from headrace.ledger.spending import SpendingReader
from headrace.wiring.spending_watch import SpendingWatch, iter_budgets

BASE = {"models": {"m": {}}, "pools": {"p": {"model": "m", "engine": "vllm", "endpoints": ["http://h"]}}}


def plan_of(**sections: object) -> TenancyPlan:
    return compile_tenancy_plan(Declaration.model_validate({**BASE, **sections}))


def test_budgets_of_all_levels_are_found() -> None:
    """Limits that are no budgets are not asked for."""
    _, key = new_key("t", limits=LimitSet(amounts={Unit.BUDGET_PER_DAY: 1, Unit.REQUESTS_PER_MIN: 1}))
    plan = plan_of(
        quota={"budget": {"per_day": 1}},
        organisations={"o": {"budget": {"per_month": 1}}},
        tenants={
            "t": {"organisation": "o", "projects": {"w": {"budget": {"per_day": 1}}}, "limits": {"requests_per_min": 1}}
        },
    )
    found = [(one.level, one.name, one.unit) for one in iter_budgets(plan, [key])]
    assert found == [
        (Level.GATEWAY, "", Unit.BUDGET_PER_DAY),
        (Level.ORGANISATION, "o", Unit.BUDGET_PER_MONTH),
        (Level.PROJECT, "t/w", Unit.BUDGET_PER_DAY),
        (Level.KEY, key.key_id, Unit.BUDGET_PER_DAY),
    ]


async def test_workers_are_told_of_declared_budgets_only_and_at_once(tmp_path) -> None:
    """A budget that comes with a reload is looked up with the next look; without any, the ledger is left alone."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    migrate(url)
    database, clock = open_database(url), SystemClock()
    row = {"uid": "a", "request_id": "a", "received_at": clock.wall_s(), "stream": False, "attempts": 1}
    with database.writing() as connection:
        connection.execute(REQUESTS.insert().values(**row, outcome="completed", cost_nanos=5, tenant="t", key_id="k"))
    told: list[tuple[Spent, ...]] = []
    plans = [plan_of(tenants={"t": {}})]

    async def tell(spent: tuple[Spent, ...]) -> None:
        told.append(spent)

    watch = SpendingWatch(SpendingReader(database), clock, lambda: (plans[0], (), 0), tell)
    await watch.look()
    assert told == []
    plans[0] = plan_of(tenants={"t": {"budget": {"per_day": 1}}})
    for _ in range(3):
        await watch.look()
    assert [[(one.name, one.unit, one.nanos) for one in spent] for spent in told] == [[("t", Unit.BUDGET_PER_DAY, 5)]]
    await watch.look(plan_of(tenants={"t": {"budget": {"per_day": 1, "per_month": 1}}}))
    assert {one.unit for one in told[-1]} == {Unit.BUDGET_PER_DAY, Unit.BUDGET_PER_MONTH}, (
        "of a plan that is coming, too"
    )
    database.close()
