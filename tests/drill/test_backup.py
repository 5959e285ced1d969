"""docs/backup.md, step by step, while requests are written: nothing accounted before the back-up is missing."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path

from headrace.database.migrate import migrate
from headrace.database.url import parse_database_url, sqlite_url
from headrace.domain.clock import SystemClock
from headrace.ledger.journal import JournalWriter
from headrace.ledger.process import open_ingest
from headrace.ledger.projector import Progress, Projector
from headrace.ledger.record import RequestRecord, encode_record

DOCUMENT = Path(__file__).parents[2] / "docs" / "backup.md"


def _projector(state: Path) -> Projector:
    url = parse_database_url(sqlite_url(state / "headrace.db"))
    return Projector(state / "journal", lambda: open_ingest(url), SystemClock())


def _back_up_as_documented(state: Path, folder: Path) -> None:
    """Run the page's first shell block."""
    block = re.search(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert block is not None
    subprocess.run(
        ["sh", "-c", block[1]], cwd=folder, env={**os.environ, "STATE": str(state)}, check=False, capture_output=True
    )
    assert (folder / "backup" / "headrace.db").exists()


def test_a_back_up_taken_under_load_restores_everything_before_it(tmp_path):
    """Journal first, then database: after restoring both, every earlier request is a row, once."""
    state, restored = tmp_path / "state", tmp_path / "restored"
    migrate(sqlite_url(state / "headrace.db"))
    journal = JournalWriter(
        state / "journal",
        worker=0,
        pid=1,
        started_at=1.0,
        buffer_records=1_000_000,
        segment_bytes=65_536,
        journal_bytes=1 << 30,
    )
    projector = _projector(state)
    written = 0
    is_over = threading.Event()

    def write_some() -> None:
        nonlocal written
        for _ in range(500):
            record = RequestRecord(uid=f"{written:032x}", request_id="r", received_at=1.0, outcome="completed")
            journal.append(encode_record(record))
            written += 1
        journal.flush()

    def keep_busy() -> None:
        while not is_over.is_set():
            write_some()
            projector.project()
        projector.close()

    for _ in range(10):
        write_some()
    projector.project()
    write_some()
    before = written
    busy = threading.Thread(target=keep_busy)
    projector.close()  # its connection belongs to the thread that opened it
    busy.start()
    try:
        _back_up_as_documented(state, tmp_path)
    finally:
        is_over.set()
        busy.join()
        journal.close()

    restored.mkdir()
    shutil.copy(tmp_path / "backup" / "headrace.db", restored / "headrace.db")
    shutil.copytree(tmp_path / "backup" / "journal", restored / "journal")
    replay = _projector(restored)
    assert replay.project() is Progress.CAUGHT_UP
    replay.close()
    with contextlib.closing(sqlite3.connect(restored / "headrace.db")) as connection:
        uids = {int(uid, 16) for (uid,) in connection.execute("SELECT uid FROM requests")}
    assert uids >= set(range(before))
