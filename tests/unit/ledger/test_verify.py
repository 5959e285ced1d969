"""Journal against database: waiting, lost and missing records are told apart."""

import pytest
from sqlalchemy import delete

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.tables import REQUESTS
from headrace.database.url import parse_database_url
from headrace.domain.clock import SystemClock
from headrace.ledger.process import open_ingest
from headrace.ledger.projector import Projector
from headrace.ledger.verify import verify_ledger


@pytest.fixture
def database(database_url):
    migrate(database_url)
    opened = open_database(database_url)
    yield opened
    opened.close()


def test_waiting_records_are_counted_and_not_missing(database, database_url, make_journal, make_record, journal_dir):
    """A projection that is behind is no loss."""
    projector = Projector(journal_dir, lambda: open_ingest(parse_database_url(database_url)), SystemClock())
    journal = make_journal(buffer_records=4)
    for number in range(3):
        journal.append(make_record(number))
    journal.flush()
    projector.project()
    for number in range(3, 9):
        journal.append(make_record(number))
    journal.flush()
    check = verify_ledger(journal_dir, database)
    assert (check.rows, check.segments, check.checked_records, check.missing_records) == (3, 1, 3, 0)
    assert check.waiting_records == 4
    assert check.waiting_bytes > 0
    assert (check.dropped_records, check.is_complete) == (0, True)
    projector.project()
    check = verify_ledger(journal_dir, database)
    assert (check.rows, check.waiting_records, check.waiting_bytes, check.dropped_records) == (7, 0, 0, 2)
    journal.close()
    projector.close()


def test_rows_that_vanished_are_missing(database, database_url, make_journal, make_record, journal_dir):
    """A database restored from too old a back-up is noticed."""
    projector = Projector(journal_dir, lambda: open_ingest(parse_database_url(database_url)), SystemClock())
    journal = make_journal()
    for number in range(1200):
        journal.append(make_record(number))
    journal.flush()
    projector.project()
    with database.writing() as connection:
        connection.execute(delete(REQUESTS).where(REQUESTS.c.uid == f"{700:032x}"))
    check = verify_ledger(journal_dir, database)
    assert (check.checked_records, check.missing_records, check.is_complete) == (1200, 1, False)
    journal.close()
    projector.close()


def test_nothing_at_all_is_complete(database, journal_dir):
    """A fresh instance has nothing to complain about."""
    check = verify_ledger(journal_dir, database)
    assert (check.rows, check.segments, check.is_complete) == (0, 0, True)
