"""What `headrace status` says in words."""

import pytest
from tests.unit.cli.test_screens import instance_status, screen

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
