"""What `headrace status` says in words."""

import msgspec
import pytest
from tests.unit.cli.test_screens import AT, instance_status, screen

from headrace.batch.look import BatchView
from headrace.cli.status_view import status_view


@pytest.mark.parametrize(
    ("is_ready", "reason", "said"),
    [
        (True, "ready", "state        ready\n"),
        (True, "qwen3-8b: loading", "state        ready; qwen3-8b: loading\n"),
        (False, "qwen3-8b: loading", "state        not ready; qwen3-8b: loading\n"),
        (False, "ready", "state        not ready\n"),
    ],
)
def test_the_state_is_said_once(is_ready: bool, reason: str, said: str) -> None:
    """Not `ready: ready`; what is still being waited for stands behind it."""
    assert said in screen(status_view(instance_status(is_ready=is_ready, reason=reason)), 120)


def test_each_worker_has_its_own_restarts() -> None:
    """A place whose worker died twice shows 2, the other one 0."""
    shown = screen(status_view(instance_status()), 120)
    rows = [line.split() for line in shown.splitlines() if line.startswith(("1  ", "2  "))]
    assert [row[5] for row in rows] == ["2", "0"]


def test_open_batches_are_shown() -> None:
    """Whose they are, how many lines they have, and when their window ends; no table where there are none."""
    assert "open batch" not in screen(status_view(instance_status()), 120)
    now = AT.timestamp()
    batch = BatchView(
        batch_id="batch_0197f3a27c1e7b4d9c553f2a9e6d1b08", tenant="search", status="in_progress",
        endpoint="/v1/chat/completions", input_file_id="file-1", lines=5000, completed=0, failed=0,
        created_at=now - 60, expires_at=now + 3600,
    )  # fmt: skip
    status = msgspec.structs.replace(instance_status(), batches=(batch,))
    for width in (80, 160):
        [row] = [line for line in screen(status_view(status), width).splitlines() if line.startswith(batch.batch_id)]
        assert row.split()[:4] == [batch.batch_id, "search", "in_progress", "5000"]
