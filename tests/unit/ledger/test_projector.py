"""The projection: every record once, whatever is replayed, torn, refused or unavailable."""

import resource

import pytest
from sqlalchemy import func, select

from headrace.database.connect import open_database
from headrace.database.tables import JOURNAL_LOSSES, JOURNAL_POSITIONS, REQUESTS
from headrace.database.url import parse_database_url
from headrace.domain.clock import SystemClock
from headrace.ledger.frames import encode_frame
from headrace.ledger.ingest.contract import Batch, DatabaseUnavailableError
from headrace.ledger.process import open_ingest
from headrace.ledger.projector import Progress, Projector
from headrace.ledger.segment import list_segments
from headrace.ledger.turns import TURN_ROWS


@pytest.fixture
def projector(journal_dir, database_url):
    made = Projector(journal_dir, lambda: open_ingest(parse_database_url(database_url)), SystemClock())
    yield made
    made.close()


@pytest.fixture
def query(database_url):
    """Runs a query and gives all rows."""
    database = open_database(database_url)

    def run(statement):
        with database.reading() as connection:
            return [tuple(row) for row in connection.execute(statement)]

    yield run
    database.close()


UIDS = select(REQUESTS.c.uid).order_by(REQUESTS.c.uid)


def test_records_become_rows_while_the_writer_lives(projector, query, make_journal, make_record):
    """The database follows the journal; the file stays, as its writer goes on."""
    journal = make_journal()
    journal.append(make_record(1, tenant="team-a", stream=True, output_tokens=None, ttft_s=0.25))
    journal.flush()
    assert projector.project() is Progress.CAUGHT_UP
    columns = (REQUESTS.c.tenant, REQUESTS.c.stream, REQUESTS.c.output_tokens, REQUESTS.c.ttft_s)
    assert query(select(*columns)) == [("team-a", True, None, 0.25)]
    journal.append(make_record(2))
    journal.flush()
    assert projector.project() is Progress.CAUGHT_UP
    assert query(UIDS) == [(f"{number:032x}",) for number in (1, 2)]
    assert projector.measure_backlog().waiting_bytes == 0
    journal.close()


def test_finished_files_are_deleted_and_forgotten(projector, query, make_journal, make_record, journal_dir):
    """The journal does not grow for ever."""
    journal = make_journal(segment_bytes=100_000)
    for number in range(3000):
        journal.append(make_record(number))
    journal.close()
    assert len(list_segments(journal_dir)) > 1
    assert projector.project() is Progress.CAUGHT_UP
    assert projector.project() is Progress.CAUGHT_UP
    assert list_segments(journal_dir) == []
    assert query(select(func.count()).select_from(REQUESTS)) == [(3000,)]
    assert query(select(JOURNAL_POSITIONS.c.segment)) == []


def test_a_replayed_journal_adds_nothing(projector, query, make_journal, make_record, journal_dir):
    """A journal restored from a back-up may be projected again."""
    journal = make_journal()
    for number in range(50):
        journal.append(make_record(number))
    journal.flush()
    (path,) = list_segments(journal_dir)
    copy = path.read_bytes()
    journal.close()
    projector.project()
    assert list_segments(journal_dir) == []
    path.write_bytes(copy)
    assert projector.project() is Progress.CAUGHT_UP
    assert query(UIDS) == [(f"{number:032x}",) for number in range(50)]


def test_a_torn_tail_is_counted_and_the_file_goes(projector, query, make_journal, make_record, journal_dir):
    """kill -9 in the middle of a write costs that frame alone."""
    journal = make_journal()
    journal.append(make_record(1))
    journal.close()
    (path,) = list_segments(journal_dir)
    with path.open("ab") as file:
        file.write(encode_frame([make_record(2)])[:-3])
    torn_bytes = len(encode_frame([make_record(2)])) - 3
    assert projector.project() is Progress.CAUGHT_UP
    assert query(UIDS) == [(f"{1:032x}",)]
    assert query(select(JOURNAL_LOSSES.c.kind, JOURNAL_LOSSES.c.amount)) == [("torn", torn_bytes)]
    assert list_segments(journal_dir) == []


def test_dropped_records_are_known_to_the_database(projector, query, make_journal, make_record):
    """What a writer dropped can be asked for after it is gone."""
    journal = make_journal(buffer_records=2)
    for number in range(5):
        journal.append(make_record(number))
    journal.flush()
    projector.project()
    journal.append(make_record(6))
    journal.append(make_record(7))
    journal.append(make_record(8))
    journal.close()
    projector.project()
    assert query(select(JOURNAL_LOSSES.c.kind, JOURNAL_LOSSES.c.amount)) == [("dropped", 4)]


def test_a_row_the_database_refuses_does_not_stop_the_others(projector, query, make_journal, make_record):
    """One impossible value costs one row, and is counted."""
    journal = make_journal()
    journal.append(make_record(1))
    journal.append(make_record(2, output_tokens=2**63))
    journal.append(make_record(3))
    journal.close()
    assert projector.project() is Progress.CAUGHT_UP
    assert query(UIDS) == [(f"{number:032x}",) for number in (1, 3)]
    assert query(select(JOURNAL_LOSSES.c.kind, JOURNAL_LOSSES.c.amount)) == [("refused", 1)]


def test_many_records_become_rows_as_they_were_written(projector, query, make_journal, make_record):
    """Whether requests are all alike, differ in everything or in the last one only, each row is its own."""
    varied = [
        {"uid": f"{number:032x}", "stream": number % 3 == 0, "tpot_s": None if number % 2 else 0.25 * number}
        | {"pool": "a" if number < 2200 else None, "tenant": "team-a", "code": "late" if number == 2999 else None}
        | {"input_tokens": number // 1024, "project": None if number == 500 else "p"}
        for number in range(3010)
    ]
    journal = make_journal(buffer_records=10_000)
    for number, fields in enumerate(varied):
        journal.append(make_record(number, **{name: value for name, value in fields.items() if name != "uid"}))
    journal.close()
    assert projector.project() is Progress.CAUGHT_UP
    names = tuple(varied[0])
    found = query(select(*(REQUESTS.c[name] for name in names)).order_by(REQUESTS.c.uid))
    assert [dict(zip(names, row, strict=True)) for row in found] == varied


def test_much_work_is_done_in_short_turns(projector, make_journal, make_record):
    """Whoever shares the core with it need not wait until thousands of rows are written."""
    journal = make_journal()
    for number in range(4096):
        journal.append(make_record(number))
    journal.flush()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    assert projector.project() is Progress.CAUGHT_UP
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before >= 4096 // TURN_ROWS


def test_a_frame_larger_than_a_read_is_still_taken(projector, query, make_journal, make_record):
    """Long request ids cannot stop the projection."""
    journal = make_journal()
    for number in range(1000):
        journal.append(make_record(number, request_id="x" * 4000))
    journal.close()
    assert projector.project() is Progress.CAUGHT_UP
    assert query(select(func.count()).select_from(REQUESTS)) == [(1000,)]


def test_a_database_that_is_away_is_reported_and_caught_up_with(make_journal, make_record, journal_dir, tmp_path):
    """The journal waits, the backlog says why and how much, and nothing is lost."""
    url = parse_database_url(f"sqlite:///{tmp_path / 'database.db'}")
    is_away = True

    def connect():
        if is_away:
            raise DatabaseUnavailableError("away")
        return open_ingest(url)

    projector = Projector(journal_dir, connect, SystemClock())
    journal = make_journal()
    journal.append(make_record(1))
    journal.flush()
    assert projector.project() is Progress.BLOCKED
    backlog = projector.measure_backlog()
    assert (backlog.error, backlog.rows, backlog.waiting_records) == ("away", 0, 1)
    assert backlog.waiting_bytes > 0
    assert backlog.lag_s >= 0
    is_away = False
    assert projector.project() is Progress.CAUGHT_UP
    backlog = projector.measure_backlog()
    assert (backlog.error, backlog.rows, backlog.waiting_records, backlog.lag_s) == (None, 1, 0, None)
    journal.close()
    projector.close()


def test_a_batch_and_its_position_are_one_transaction(database_url, make_record):
    """A refused batch leaves neither rows nor a position."""
    ingest = open_ingest(parse_database_url(database_url))
    row = ["u", "r", None, 1.0, *[None] * 6, False, *[None] * 7, "completed", None, 200, 1, *[None] * 8]
    assert ingest.write(Batch(segment="s", position=7, rows=[row, row])) == 1
    assert ingest.read_positions() == {"s": 7}
    with pytest.raises(Exception, match=r".") as caught:
        ingest.write(Batch(segment="s", position=9, rows=[["v", None, *row[2:]]]))
    assert type(caught.value).__name__ == "BatchRefusedError"
    assert ingest.read_positions() == {"s": 7}
    assert ingest.make_durable() is True
    ingest.forget(["s"])
    assert ingest.read_positions() == {}
    ingest.close()
