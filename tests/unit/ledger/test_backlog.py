"""The projection's report file."""

from headrace.ledger.backlog import Backlog, find_backlog, write_backlog


def test_a_report_is_read_back_as_written(tmp_path):
    """The supervisor learns what the projection measured."""
    path = tmp_path / "run" / "ledger.json"
    report = Backlog(pid=7, at=1.5, waiting_records=1, waiting_bytes=3, lag_s=0.5, rows=4, error="away")
    write_backlog(path, report)
    assert find_backlog(path) == report
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger.json"]


def test_no_report_or_a_broken_one_is_none(tmp_path):
    """Not known is not zero."""
    assert find_backlog(tmp_path / "absent.json") is None
    (tmp_path / "broken.json").write_text("{")
    assert find_backlog(tmp_path / "broken.json") is None
