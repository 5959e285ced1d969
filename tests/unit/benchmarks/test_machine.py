"""What is read of the machine."""

import pytest
from benchmarks.machine import parse_busy_cpu_s
from benchmarks.process_tree import TICKS_PER_S


def test_idle_and_waiting_for_disks_is_not_busy() -> None:
    """Stolen time counts as busy: the benchmark did not get it."""
    assert parse_busy_cpu_s("cpu  1 2 4 800 1600 8 16 32 0 0\ncpu0 ...") == pytest.approx(63 / TICKS_PER_S)
