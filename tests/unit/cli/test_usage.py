"""`headrace usage`: sums for people, programs and spreadsheets, and the ledger's verdict on itself."""

import csv
import io
import json
import sqlite3
import time
from pathlib import Path

import pytest

from headrace.database.migrate import migrate
from headrace.database.url import parse_database_url
from headrace.domain.clock import SystemClock
from headrace.ledger.journal import JournalWriter
from headrace.ledger.process import open_ingest
from headrace.ledger.projector import Projector
from headrace.ledger.record import RequestRecord, encode_record


@pytest.fixture
def ledger(run, tmp_path: Path):
    """Writes requests of the last minute into the state folder; projects all but those marked as waiting."""
    state = tmp_path / "state"
    url = f"sqlite:///{state / 'headrace.db'}"
    migrate(url)
    now_at = time.time()  # noqa: TID251
    journal = JournalWriter(
        state / "journal",
        worker=0,
        pid=1,
        started_at=now_at,
        buffer_records=100,
        segment_bytes=1 << 20,
        journal_bytes=1 << 30,
    )

    def write(*requests: dict[str, object], is_waiting: bool = False) -> None:
        for number, request in enumerate(requests):
            given = {
                "request_id": "r",
                "dialect": "chat.completions",
                "received_at": now_at - 60,
                "outcome": "completed",
                **request,
            }
            journal.append(encode_record(RequestRecord(uid=f"{is_waiting}{number}", **given)))
        journal.flush()
        if not is_waiting:
            projector = Projector(state / "journal", lambda: open_ingest(parse_database_url(url)), SystemClock())
            projector.project()
            projector.close()

    yield write
    journal.close()


def test_usage_sums_up_by_tenant(run, ledger, monkeypatch):
    """What was not measured says so."""
    monkeypatch.setenv("COLUMNS", "250")
    ledger(
        {"tenant": "a", "input_tokens": 7, "output_tokens": 3, "ttft_s": 0.25, "e2e_s": 1.5},
        {"tenant": "b", "outcome": "rejected"},
    )
    ran = run("usage")
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert "0.2500" in lines["a"]
    assert "not measured" in lines["b"]
    data = json.loads(run("usage", "--json").out)["data"]
    assert [(row["groups"][0], row["requests"], row["input_tokens"]) for row in data["rows"]] == [
        ("a", 1, 7),
        ("b", 1, None),
    ]
    assert run("usage", "--format", "json").code == 0


def test_usage_as_csv_is_one_row_per_group(run, ledger):
    """A spreadsheet gets numbers, and empty cells where nothing was measured."""
    ledger({"requested_model": "small", "output_tokens": 3}, {"requested_model": None, "outcome": "rejected"})
    rows = list(csv.DictReader(io.StringIO(run("usage", "--format", "csv", "--by", "model").out)))
    by_model = {row["model"]: row for row in rows}
    assert (by_model["small"]["requests"], by_model["small"]["output_tokens"]) == ("1", "3")
    assert (by_model["small"]["ttft_p50_s"], by_model[""]["rejected"]) == ("", "1")


def test_since_bounds_the_stretch(run, ledger):
    """Older requests are not counted."""
    ledger({"tenant": "a"})
    assert json.loads(run("usage", "--since", "30s", "--json").out)["data"]["total"]["requests"] == 0
    assert json.loads(run("usage", "--since", "1h", "--json").out)["data"]["total"]["requests"] == 1


def test_wrong_arguments_are_wrong_usage(run):
    """Exit code 2 and what would be right."""
    assert run("usage", "--since", "yesterday").code == 2
    assert run("usage", "--by", "colour").code == 2


def test_verify_counts_what_waits(run, ledger):
    """Waiting is not missing: exit code 0."""
    ledger({}, {})
    ledger({}, {}, {}, is_waiting=True)
    ran = run("usage", "verify", "--json")
    data = json.loads(ran.out)["data"]
    assert ran.code == 0
    assert (data["rows"], data["waiting_records"], data["checked_records"], data["missing_records"]) == (2, 3, 2, 0)
    assert (data["is_complete"], data["live_dropped_records"]) == (True, None)


def test_verify_finds_missing_rows(run, ledger, tmp_path):
    """Rows that the journal knows and the database lost: exit code 3."""
    ledger({}, {})
    with sqlite3.connect(tmp_path / "state" / "headrace.db") as connection:
        connection.execute("DELETE FROM requests WHERE uid = 'False1'")
    connection.close()
    ran = run("usage", "verify")
    assert (ran.code, "INCOMPLETE" in ran.out) == (3, True)


def test_usage_by_several_groups_with_cost_for_a_spreadsheet(run, ledger):
    """Tenant, project and model at once; what has no price has an empty cell, not a zero."""
    common = {"tenant": "a", "project": "web", "requested_model": "m", "cost_nanos": 1_500_000_000, "gpu_s": 0.5}
    ledger(common, common, {**common, "project": None, "cost_nanos": None, "gpu_s": None}, {"tenant": "b"})
    rows = list(csv.DictReader(io.StringIO(run("usage", "--by", "tenant,project,model", "--csv").out)))
    seen = [(row["tenant"], row["project"], row["model"], row["requests"], row["cost"], row["gpu_s"]) for row in rows]
    assert sorted(seen) == [
        ("a", "", "m", "1", "", ""),
        ("a", "web", "m", "2", "3.000000", "1.000"),
        ("b", "", "", "1", "", ""),
    ]
    report = json.loads(run("usage", "--by", "day,model", "--tenant", "a", "--project", "web", "--json").out)["data"]
    assert (report["by"], report["total"]["requests"], report["total"]["cost_nanos"]) == (
        ["day", "model"],
        2,
        3_000_000_000,
    )
    ran = run("usage", "--by", "tenant,colour")
    assert (ran.code, 'not summed up by "colour"' in ran.err) == (2, True)
    ran = run("usage", "--by", "tenant,modle")
    assert 'Did you mean "model"?' in ran.err
    assert "--by tenant,model" in ran.err


def test_a_narrow_screen_keeps_how_requests_ended_and_both_latencies(run, ledger, monkeypatch):
    """What was not measured at all goes first; then the least columns; three groups still are a table."""
    ledger({"tenant": "research", "input_tokens": 7, "output_tokens": 3, "ttft_s": 0.25, "e2e_s": 1.5}, {"tenant": "b"})
    monkeypatch.setenv("COLUMNS", "80")
    out = run("usage").out
    assert "not measured: cached input tokens, GPU s, cost" in out
    heads = "".join(out.splitlines()[:5])
    for column in ("requests", "completed", "rejected", "failed", "TTFT p99 s", "E2E p99 s"):
        assert column.split()[0] in heads, column
        assert f"{column}," not in out.partition("left out")[2]
    by_three = run("usage", "--by", "tenant,day,class").out
    assert "tenant research" not in by_three, "rows, not blocks"
    assert len([line for line in by_three.splitlines() if line.startswith(("research", "b ", "total"))]) == 3
    for column in ("requests", "completed", "rejected", "failed"):
        assert column in by_three.partition("left out")[0]
