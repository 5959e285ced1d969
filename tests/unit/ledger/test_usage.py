"""Usage: sums and percentiles, and that "not measured" never becomes zero."""

import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.tables import REQUESTS
from headrace.ledger.usage import Percentiles, UsageFilter, UsageGroup, percentiles, read_usage

DAY_S = 86400.0


@pytest.fixture
def database(database_url):
    migrate(database_url)
    opened = open_database(database_url)
    yield opened
    opened.close()


def _insert(database, *rows):
    with database.writing() as connection:
        for number, row in enumerate(rows):
            connection.execute(
                REQUESTS.insert().values(
                    {
                        "uid": f"u{number}",
                        "request_id": "r",
                        "received_at": 100.0,
                        "stream": False,
                        "outcome": "completed",
                        "attempts": 1,
                        "dialect": "chat.completions",
                        **row,
                    }
                )
            )


def test_requests_are_summed_by_tenant_and_outcome(database):
    """Each request counts once, under its tenant and its one outcome."""
    _insert(
        database,
        {"tenant": "a", "input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 4},
        {"tenant": "a", "input_tokens": 1, "output_tokens": None, "outcome": "failed"},
        {"tenant": "b", "outcome": "cancelled"},
        {"tenant": None, "outcome": "rejected"},
    )
    report = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.TENANT,))
    rows = {row.groups[0]: row for row in report.rows}
    assert set(rows) == {"a", "b", None}
    assert (rows["a"].requests, rows["a"].completed, rows["a"].failed) == (2, 1, 1)
    assert (rows["a"].input_tokens, rows["a"].cached_input_tokens, rows["a"].output_tokens) == (11, 4, 5)
    assert (report.total.requests, report.total.cancelled, report.total.rejected) == (4, 1, 1)
    assert report.total.input_tokens == 11


def test_what_was_not_measured_is_none(database):
    """No tokens reported is not zero tokens."""
    _insert(database, {"tenant": "b"})
    (row,) = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.TENANT,)).rows
    assert (row.input_tokens, row.output_tokens, row.ttft, row.e2e) == (None, None, None, None)


def test_no_requests_are_no_rows_and_a_total_of_zero(database):
    """An idle day is shown as one."""
    report = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.MODEL,))
    assert report.rows == ()
    assert (report.total.requests, report.total.input_tokens, report.total.ttft) == (0, None, None)


def test_the_stretch_of_time_includes_its_start_and_not_its_end(database):
    """Two stretches that touch count each request once."""
    _insert(database, *({"received_at": at} for at in (99.9, 100.0, 199.9, 200.0)))
    report = read_usage(database, since_at=100.0, until_at=200.0, by=(UsageGroup.MODEL,))
    assert report.total.requests == 2


def test_days_are_utc_days(database):
    """A request just before midnight belongs to the day before."""
    _insert(database, *({"received_at": at} for at in (DAY_S - 0.1, DAY_S, 1.9 * DAY_S)))
    report = read_usage(database, since_at=0, until_at=10 * DAY_S, by=(UsageGroup.DAY,))
    assert [(row.groups[0], row.requests) for row in report.rows] == [("1970-01-01", 1), ("1970-01-02", 2)]


@pytest.mark.parametrize(
    ("by", "column"),
    [(UsageGroup.MODEL, "requested_model"), (UsageGroup.KEY, "key_id"), (UsageGroup.ENDPOINT, "endpoint")],
)
def test_other_groups_use_their_column(database, by, column):
    """Usage is told by model, key and endpoint as well."""
    _insert(database, {column: "x"}, {column: "x"}, {column: "y"})
    report = read_usage(database, since_at=0, until_at=1000, by=(by,))
    assert [(row.groups[0], row.requests) for row in report.rows] == [("x", 2), ("y", 1)]


def test_percentiles_come_from_the_group_and_the_whole(database):
    """The total's percentile is that of all requests, not a mean of the groups'."""
    _insert(
        database,
        *({"tenant": "a", "ttft_s": 0.1, "e2e_s": 1.0} for _ in range(9)),
        {"tenant": "b", "ttft_s": 0.9, "e2e_s": None},
    )
    report = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.TENANT,))
    a, b = report.rows
    assert a.ttft == Percentiles(p50_s=0.1, p99_s=0.1, measured=9)
    assert (b.ttft, b.e2e) == (Percentiles(p50_s=0.9, p99_s=0.9, measured=1), None)
    assert report.total.ttft == Percentiles(p50_s=0.1, p99_s=0.9, measured=10)


@pytest.mark.parametrize(
    ("count", "p50_s", "p99_s"), [(1, 1.0, 1.0), (2, 1.0, 2.0), (99, 50.0, 99.0), (100, 50.0, 99.0), (101, 51.0, 100.0)]
)
def test_percentiles_are_values_that_were_measured(count, p50_s, p99_s):
    """Nearest rank, not interpolation."""
    measured = percentiles([float(number) for number in range(count, 0, -1)])
    assert measured == Percentiles(p50_s=p50_s, p99_s=p99_s, measured=count)


def test_usage_is_of_the_model_that_answered(database):
    """A name that stands for several models is found by its own name, and summed under the model it went to."""
    _insert(
        database,
        {"requested_model": "auto-chat", "chosen_model": "small", "output_tokens": 5},
        {"requested_model": "small", "output_tokens": 2},
        {"requested_model": "auto-chat", "outcome": "rejected"},
    )
    report = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.MODEL,))
    assert {row.groups[0]: (row.requests, row.output_tokens) for row in report.rows} == {
        "small": (2, 7),
        "auto-chat": (1, None),
    }
    for model, requests in (("auto-chat", 2), ("small", 2), ("large", 0)):
        only = UsageFilter(model=model)
        found = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.TENANT,), only=only)
        assert found.total.requests == requests


def test_what_asks_no_model_is_counted_apart(database):
    """Polls of batches and lists of models are no inference: they are neither completed requests nor a latency."""
    poll = {"dialect": None, "e2e_s": 0.001, "received_at": 100.0}
    _insert(
        database,
        {"tenant": "a", "requested_model": "m", "e2e_s": 2.0},
        {"tenant": "a", "requested_model": "m", "outcome": "rejected"},
        {"tenant": "a", **poll},
        {"tenant": "a", "outcome": "rejected", **poll},
        {"tenant": "b", **poll},
    )
    report = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.TENANT,))
    (row,) = report.rows
    assert (row.groups, row.requests, row.completed, row.rejected, row.other_requests) == (("a",), 2, 1, 1, 2)
    assert row.e2e == Percentiles(p50_s=2.0, p99_s=2.0, measured=1)
    assert (report.total.requests, report.total.other_requests) == (2, 3)
    by_model = read_usage(database, since_at=0, until_at=1000, by=(UsageGroup.MODEL,))
    assert [one.groups[0] for one in by_model.rows] == ["m"]
    assert by_model.total.other_requests == 3
