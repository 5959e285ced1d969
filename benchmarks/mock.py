"""Starts mock engines (mock_engine.c) for the targets to forward to."""

import time
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.native import NativePrograms
from benchmarks.problem import BenchmarkError
from benchmarks.running import Running, free_port, start_program, stopping_on_failure
from benchmarks.scenarios import ITL_S

READY_S = 10.0


def start_mock(
    native: NativePrograms, machine: Machine, folder: Path, *, name: str = "mock", arguments: tuple[str, ...] = ()
) -> Running:
    """One mock engine on a free port, ready."""
    port = free_port()
    command = [str(native.mock_engine), "--port", str(port), "--itl-ms", str(ITL_S * 1000), *arguments]
    mock = start_program(
        name, machine.pinned(machine.load_core, command), folder=folder, port=port, key="none", model="mock"
    )
    with stopping_on_failure(mock):
        _wait_until_ready(mock)
    return mock


def _wait_until_ready(mock: Running) -> None:
    deadline_mono_s = time.monotonic() + READY_S
    while "ready" not in mock.log_tail():
        mock.require_alive()
        if time.monotonic() > deadline_mono_s:
            raise BenchmarkError(f"the mock engine did not start within {READY_S:.0f} s: {mock.log_tail()}")
        time.sleep(0.02)
