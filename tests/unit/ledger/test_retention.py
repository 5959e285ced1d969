"""Rows that are older than `ledger.retention_days` leave the database, some at a time."""

import os
import subprocess
import time

from sqlalchemy import func, select

from headrace.database.connect import open_database
from headrace.database.tables import REQUESTS
from headrace.database.url import parse_database_url
from headrace.domain.clock import SystemClock
from headrace.ledger.process import open_ingest, projector_launch
from headrace.ledger.projector import EXPIRY_ROWS, Progress, Projector
from headrace.ledger.verify import verify_ledger

DAY_S = 86400


def _received(database_url):
    database = open_database(database_url)
    with database.reading() as connection:
        rows = [row[0] for row in connection.execute(select(REQUESTS.c.received_at).order_by(REQUESTS.c.received_at))]
    database.close()
    return rows


def _count(database_url):
    database = open_database(database_url)
    with database.reading() as connection:
        rows = connection.execute(select(func.count()).select_from(REQUESTS)).scalar_one()
    database.close()
    return rows


def _projector(journal_dir, database_url, retention_days):
    url = parse_database_url(database_url)
    return Projector(journal_dir, lambda: open_ingest(url), SystemClock(), retention_days=retention_days)


def _fill(make_journal, make_record, ages_days):
    journal, now = make_journal(), SystemClock().wall_at().timestamp()
    for number, age_days in enumerate(ages_days):
        journal.append(make_record(number, received_at=now - age_days * DAY_S))
    journal.close()
    return now


def test_only_rows_older_than_the_bound_go(journal_dir, database_url, make_journal, make_record):
    """A request of 31 days ago goes, one of 29 days ago stays; what is gone does not come back."""
    now = _fill(make_journal, make_record, [400, 31, 29, 0])
    projector = _projector(journal_dir, database_url, 30)
    for _ in range(3):
        assert projector.project() is Progress.CAUGHT_UP
    projector.close()
    assert [round((now - at) / DAY_S) for at in _received(database_url)] == [29, 0]


def test_rows_deleted_on_purpose_are_not_missing(journal_dir, database_url, make_journal, make_record):
    """A journal file that is still being written holds requests whose rows are gone: no loss."""
    journal, now = make_journal(), SystemClock().wall_at().timestamp()
    for number, age_days in enumerate([40, 1]):
        journal.append(make_record(number, received_at=now - age_days * DAY_S))
    journal.flush()
    projector = _projector(journal_dir, database_url, 30)
    projector.project()
    database = open_database(database_url)
    check = verify_ledger(journal_dir, database, kept_since_at=now - 30 * DAY_S)
    assert (check.rows, check.checked_records, check.missing_records) == (1, 1, 0)
    database.close()
    projector.close()
    journal.close()


def test_a_long_past_goes_in_small_deletes(journal_dir, database_url, make_journal, make_record):
    """No delete is so large that it holds up what arrives."""
    _fill(make_journal, make_record, [99] * (EXPIRY_ROWS + 500) + [0])
    projector = _projector(journal_dir, database_url, 90)
    projector.project()
    assert _count(database_url) == 501
    projector.project()
    assert _count(database_url) == 1
    projector.close()


def test_without_a_bound_everything_stays(journal_dir, database_url, make_journal, make_record):
    """`retention_days: null` keeps rows for ever."""
    _fill(make_journal, make_record, [4000, 0])
    projector = _projector(journal_dir, database_url, None)
    projector.project()
    projector.close()
    assert _count(database_url) == 2


def test_the_projections_process_is_told_the_bound(tmp_path, journal_dir, make_journal, make_record):
    """The declared number of days reaches the process that deletes."""
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    _fill(make_journal, make_record, [8, 6])
    launch = projector_launch(journal_dir, tmp_path / "ledger.json", url, retention_days=7)
    process = subprocess.Popen(launch.argv, env={**os.environ, **launch.env})
    deadline_mono_s = time.monotonic() + 60
    try:
        while not (tmp_path / "ledger.json").exists():
            assert time.monotonic() < deadline_mono_s
            time.sleep(0.02)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert _count(url) == 1
