"""What a process says for operators, one JSON object a line; it never stops what the process is there for."""

import json
import subprocess
import sys
from pathlib import Path

CODE = """
import structlog
from headrace.telemetry.process_log import log_to_stderr
log_to_stderr()
log = structlog.get_logger("headrace.tests")
for number in range(3):
    log.warning("something happened", number=number)
try:
    raise ValueError("why")
except ValueError as error:
    log.error("internal bug", exc_info=error)
print("went on")
"""


def run(stderr: Path) -> str:
    with stderr.open("ab") as output:
        done = subprocess.run(
            [sys.executable, "-c", CODE], stderr=output, stdout=subprocess.PIPE, check=True, text=True
        )
    return done.stdout


def test_each_event_is_one_line_of_json(tmp_path: Path) -> None:
    """With its level, its time in UTC, and the traceback of a bug."""
    log = tmp_path / "log"
    assert run(log) == "went on\n"
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(one["event"], one["level"], one.get("number")) for one in found] == [
        ("something happened", "warning", 0),
        ("something happened", "warning", 1),
        ("something happened", "warning", 2),
        ("internal bug", "error", None),
    ]
    assert all(one["timestamp"].endswith("Z") for one in found)
    assert "ValueError: why" in found[3]["exception"]


def test_a_full_disk_under_the_log_fails_nothing_else() -> None:
    """What cannot be logged is lost, and the process goes on."""
    assert run(Path("/dev/full")) == "went on\n"
