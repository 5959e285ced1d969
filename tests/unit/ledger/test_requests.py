"""Single requests out of the ledger: newest first, within a time, of one tenant where that is asked."""

import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.tables import REQUESTS
from headrace.ledger.record import RECORD_FIELDS
from headrace.ledger.requests import READ_ROWS, read_requests
from headrace.ledger.usage import UsageFilter


@pytest.fixture
def database(tmp_path):
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    migrate(url)
    opened = open_database(url)
    rows = [
        {"uid": f"{at:04}", "request_id": "r", "received_at": float(at), "tenant": tenant, "requested_model": model}
        for at, tenant, model in ((1, "a", "m"), (2, "b", "m"), (3, "a", "n"), (4, None, None))
    ]
    with opened.writing() as connection:
        for row in rows:
            connection.execute(REQUESTS.insert().values(stream=False, outcome="completed", attempts=1, **row))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("since_at", "until_at", "only", "uids"),
    [
        (0, 10, UsageFilter(), ["0004", "0003", "0002", "0001"]),
        (2, 4, UsageFilter(), ["0003", "0002"]),
        (0, 10, UsageFilter(tenant="a"), ["0003", "0001"]),
        (0, 10, UsageFilter(tenant="a", model="n"), ["0003"]),
        (0, 10, UsageFilter(tenant="nobody"), []),
    ],
)
def test_requests_of_a_time_and_a_tenant(database, since_at, until_at, only, uids):
    """The end is not part of the time; nothing of others is among them."""
    found = read_requests(database, since_at=since_at, until_at=until_at, only=only, limit=100)
    assert [row["uid"] for row in found] == uids


def test_a_request_is_shown_with_the_journals_fields(database):
    """All that is remembered of it, and nothing else; so many at most."""
    [row] = read_requests(database, since_at=0, until_at=10, only=UsageFilter(), limit=1)
    assert tuple(row) == RECORD_FIELDS
    assert len(read_requests(database, since_at=0, until_at=10, only=UsageFilter(), limit=READ_ROWS + 1)) == 4
