"""Journals and records for the ledger's tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.ledger.journal import JournalWriter
from headrace.ledger.record import RequestRecord, encode_record


@pytest.fixture
def journal_dir(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def make_journal(journal_dir: Path) -> Callable[..., JournalWriter]:
    """Makes writers of one journal, with limits that are far away unless given."""

    def make(**limits: int) -> JournalWriter:
        given = {"worker": 0, "buffer_records": 10_000, "segment_bytes": 1 << 20, "journal_bytes": 1 << 30, **limits}
        return JournalWriter(journal_dir, pid=os.getpid(), started_at=1_700_000_000.0, **given)

    return make


@pytest.fixture
def make_record() -> Callable[..., bytes]:
    """Makes encoded records with a uid of the number given."""

    def make(number: int, **fields: object) -> bytes:
        given = {"request_id": "r", "received_at": 1_700_000_000.0 + number, "outcome": "completed", **fields}
        return encode_record(RequestRecord(uid=f"{number:032x}", **given))

    return make
