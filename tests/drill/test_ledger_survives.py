"""Drills of the ledger with real processes: kill -9, databases that go away, a full disk. Nothing lost or doubled."""

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.tables import REQUESTS
from headrace.database.url import DatabaseError, parse_database_url
from headrace.domain.clock import SystemClock
from headrace.ledger.backlog import find_backlog
from headrace.ledger.journal import JournalWriter
from headrace.ledger.process import open_ingest, projector_launch
from headrace.ledger.projector import Progress, Projector
from headrace.ledger.record import RequestRecord, encode_record
from headrace.ledger.segment import list_segments

DEADLINE_S = 90

WRITING = """
import os, sys, time
from pathlib import Path
from headrace.ledger.flusher import Flusher
from headrace.ledger.journal import JournalWriter
from headrace.ledger.record import RequestRecord, encode_record

journal = JournalWriter(Path(sys.argv[1]), worker=0, pid=os.getpid(), started_at=time.time(),
                        buffer_records=100_000, segment_bytes=200_000, journal_bytes=1 << 30)
Flusher((journal,), interval_s=0.05).start()
number = 0
while True:
    for _ in range(50):
        journal.append(encode_record(RequestRecord(
            uid=f"{number:032x}", request_id="r", received_at=float(number), outcome="completed")))
        number += 1
    time.sleep(0.001)
    if not journal.pending:
        print(number, flush=True)  # all of these are on disk
"""


def _wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline_mono_s = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline_mono_s, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.02)


def _journal(directory: Path) -> JournalWriter:
    return JournalWriter(
        directory,
        worker=1,
        pid=os.getpid(),
        started_at=time.time(),  # noqa: TID251 (names a file)
        buffer_records=1_000_000,
        segment_bytes=300_000,
        journal_bytes=1 << 30,
    )


def _append(journal: JournalWriter, numbers: range) -> None:
    for number in numbers:
        record = RequestRecord(uid=f"{number:032x}", request_id="r", received_at=float(number), outcome="completed")
        journal.append(encode_record(record))


def _count(url: str) -> int:
    database = open_database(url)
    try:
        with database.reading() as connection:
            return connection.execute(select(func.count()).select_from(REQUESTS)).scalar_one()
    except DatabaseError:
        return -1
    finally:
        database.close()


@contextlib.contextmanager
def _projecting(journal_dir: Path, backlog: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """The projection's process as the supervisor starts it; killed at the end if it still runs."""
    launch = projector_launch(journal_dir, backlog, url)
    process = subprocess.Popen(launch.argv, env={**os.environ, **launch.env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_writer_loses_only_what_was_not_flushed(tmp_path):
    """After kill -9 every record flushed before is there, in order, once, and replaying changes nothing."""
    url = parse_database_url(f"sqlite:///{tmp_path / 'headrace.db'}")
    journal_dir = tmp_path / "journal"
    process = subprocess.Popen([sys.executable, "-c", WRITING, str(journal_dir)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    flushed = 0
    while flushed < 5000:
        flushed = int(process.stdout.readline())
    process.kill()
    rest = process.stdout.read().split()
    process.stdout.close()
    process.wait()
    flushed = int(rest[-1]) if rest else flushed
    copies = {path: path.read_bytes() for path in list_segments(journal_dir)}

    for _ in range(2):
        projector = Projector(journal_dir, lambda: open_ingest(url), SystemClock())
        assert projector.project() is Progress.CAUGHT_UP
        projector.close()
        assert list_segments(journal_dir) == []
        with contextlib.closing(sqlite3.connect(tmp_path / "headrace.db")) as connection:
            uids = [int(uid, 16) for (uid,) in connection.execute("SELECT uid FROM requests ORDER BY uid")]
        assert uids == list(range(len(uids)))
        assert len(uids) >= flushed
        for path, content in copies.items():
            path.write_bytes(content)


def test_a_projection_killed_at_any_point_ends_exact(tmp_path, database_url):
    """Rows equal records, however often and wherever the projection's process is killed -9."""
    seed = 20_261_130
    random_points = random.Random(seed)
    journal_dir, backlog = tmp_path / "journal", tmp_path / "run" / "ledger.json"
    migrate(database_url)
    journal = _journal(journal_dir)
    total = 0
    for _ in range(5):
        more = range(total, total + 20_000)
        total = more.stop
        _append(journal, more)
        journal.flush()
        threshold = _count(database_url) + random_points.randrange(1, 15_000)
        with _projecting(journal_dir, backlog, database_url) as process:
            _wait_until(lambda: _count(database_url) >= threshold, "the projection makes progress")  # noqa: B023
            process.kill()
    journal.close()
    with _projecting(journal_dir, backlog, database_url) as process:
        _wait_until(lambda: not list_segments(journal_dir), "all files are projected")
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert _count(database_url) == total


@pytest.mark.postgres
def test_a_database_stopped_midway_is_caught_up_with(tmp_path, postgres_server):
    """While PostgreSQL is down the journal grows and the report says so; when it is back, rows equal records."""
    journal_dir, backlog = tmp_path / "journal", tmp_path / "run" / "ledger.json"
    journal = _journal(journal_dir)
    with postgres_server.database() as url, _projecting(journal_dir, backlog, url):
        _append(journal, range(5000))
        journal.flush()
        _wait_until(lambda: _count(url) == 5000, "the first rows are written")
        postgres_server.stop()
        try:
            _append(journal, range(5000, 9000))
            journal.flush()
            _wait_until(
                lambda: (report := find_backlog(backlog)) is not None and report.error and report.waiting_bytes > 0,
                "it is reported, with what waits",
            )
        finally:
            postgres_server.start()
        _append(journal, range(9000, 10_000))
        journal.close()
        _wait_until(lambda: _count(url) == 10_000, "the rest is written")
        _wait_until(lambda: not list_segments(journal_dir), "the files are deleted")


def test_a_locked_sqlite_file_delays_rows_and_loses_none(tmp_path):
    """An operator's open transaction holds up the projection only."""
    path = tmp_path / "headrace.db"
    url = parse_database_url(f"sqlite:///{path}")
    migrate(url)
    journal = _journal(tmp_path / "journal")
    _append(journal, range(100))
    journal.close()
    projector = Projector(tmp_path / "journal", lambda: open_ingest(url), SystemClock())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert projector.project() is Progress.BLOCKED
        assert "locked" in (projector.measure_backlog().error or "")
        other.execute("ROLLBACK")
    assert projector.project() is Progress.CAUGHT_UP
    assert _count(url.text) == 100
    projector.close()


def test_an_orphaned_projection_ends_by_itself(tmp_path):
    """When the supervisor is killed -9, no projection is left behind."""
    parent_code = """
import os, subprocess, sys, time
from pathlib import Path
from headrace.ledger.process import projector_launch
folder = Path(sys.argv[1])
launch = projector_launch(folder / "journal", folder / "ledger.json", f"sqlite:///{folder / 'headrace.db'}")
print(subprocess.Popen(launch.argv, env={**os.environ, **launch.env}).pid, flush=True)
time.sleep(3600)
"""
    parent = subprocess.Popen([sys.executable, "-c", parent_code, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    _wait_until((tmp_path / "ledger.json").exists, "the projection runs")
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    _wait_until(is_gone, "the projection ends")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    mount_point = tmp_path / "tiny"
    mount_point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"mounting a tiny file system needs root: {done.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


def test_a_full_disk_costs_only_what_the_buffer_cannot_hold(tiny_disk, tmp_path):
    """Records wait while the disk is full; after space is made, rows plus drops equal records, with no torn frame."""
    journal_dir = tiny_disk / "journal"
    url = parse_database_url(f"sqlite:///{tmp_path / 'headrace.db'}")
    journal = JournalWriter(
        journal_dir,
        worker=0,
        pid=1,
        started_at=1.0,
        buffer_records=4000,
        segment_bytes=200_000,
        journal_bytes=1 << 30,
    )
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    total = 0
    is_full = False
    while not is_full:
        _append(journal, range(total, total + 1000))
        total += 1000
        is_full = not journal.flush()
    assert "No space left" in (journal.error or "")
    assert journal.dropped == 0
    _append(journal, range(total, total + 5000))
    total += 5000
    assert journal.dropped > 0
    assert journal.flush() is False
    ballast.unlink()
    projector = Projector(journal_dir, lambda: open_ingest(url), SystemClock())
    assert projector.project() is Progress.CAUGHT_UP
    assert journal.flush() is True
    journal.close()
    assert projector.project() is Progress.CAUGHT_UP
    projector.close()
    assert _count(url.text) + journal.dropped == total
    with contextlib.closing(sqlite3.connect(tmp_path / "headrace.db")) as connection:
        assert connection.execute("SELECT kind, amount FROM journal_losses").fetchall() == [
            ("dropped", journal.dropped)
        ]
