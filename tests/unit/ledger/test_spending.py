"""What has been spent this day and this month, by every level."""

from datetime import UTC, datetime

import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.tables import REQUESTS
from headrace.domain.quota import Level, Unit
from headrace.ledger.spending import SpendingReader

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
DAY_S = 86400.0


@pytest.fixture
def database(database_url):
    migrate(database_url)
    made = open_database(database_url)
    yield made
    made.close()


def spend(database, uid: str, days_ago: float, nanos: int | None, **owner: str) -> None:
    row = {"uid": uid, "request_id": uid, "received_at": NOON - days_ago * DAY_S, "stream": False, "attempts": 1}
    with database.writing() as connection:
        connection.execute(REQUESTS.insert().values(**row, outcome="completed", cost_nanos=nanos, **owner))


def read(reader: SpendingReader, now_at: float = NOON) -> dict[tuple[Unit, Level, str], int]:
    return {(one.unit, one.level, one.name): one.nanos for one in reader.read(now_at)}


def test_a_cost_counts_at_every_level(database) -> None:
    """For the gateway, the organisation, the tenant, the project and the key; free requests for none."""
    spend(database, "a", 0, 5, organisation="o", tenant="t", project="w", key_id="k")
    spend(database, "b", 0, 2, tenant="t", key_id="l")
    spend(database, "c", 0, None, tenant="t", key_id="l")
    found = read(SpendingReader(database))
    today = {(level, name): nanos for (unit, level, name), nanos in found.items() if unit is Unit.BUDGET_PER_DAY}
    assert today == {
        (Level.GATEWAY, ""): 7,
        (Level.ORGANISATION, "o"): 5,
        (Level.TENANT, "t"): 7,
        (Level.PROJECT, "t/w"): 5,
        (Level.KEY, "k"): 5,
        (Level.KEY, "l"): 2,
    }


def test_days_and_months_are_apart(database) -> None:
    """Yesterday counts for the month only, the month before for nothing."""
    for uid, days_ago, nanos in (("a", 0, 1), ("b", 0.6, 10), ("c", 20, 100), ("d", 29, 1000), ("e", 30, 10_000)):
        spend(database, uid, days_ago, nanos, tenant="t")
    found = read(SpendingReader(database))
    assert found[Unit.BUDGET_PER_DAY, Level.TENANT, "t"] == 1
    assert found[Unit.BUDGET_PER_MONTH, Level.TENANT, "t"] == 1111


def test_late_records_of_yesterday_are_seen_and_months_end(database) -> None:
    """What is over is read once, the last two days each time."""
    reader = SpendingReader(database)
    spend(database, "a", 20, 100, tenant="t")
    assert read(reader)[Unit.BUDGET_PER_MONTH, Level.TENANT, "t"] == 100
    spend(database, "b", 0.6, 10, tenant="t")
    spend(database, "c", 0, 1, tenant="t")
    assert read(reader)[Unit.BUDGET_PER_MONTH, Level.TENANT, "t"] == 111
    assert read(reader, NOON + DAY_S) == {}
