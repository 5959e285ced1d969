"""The fleet: simulated vLLM replicas, each a process; they forget everything between two runs."""

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from benchmarks.problem import BenchmarkError

START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetShape:
    """What the replicas simulate."""

    replicas: int
    model: str
    gpu: str
    context_tokens: int
    time_scale: float
    """Simulated seconds per second."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return (
            *("--dialect", "vllm", "--gpu", self.gpu, "--model", self.model),
            *("--context-tokens", str(self.context_tokens), "--time-scale", str(self.time_scale)),
            *("--answer-tokens", f"{self.context_tokens}:{self.context_tokens}"),  # as long as it is asked for
        )


@contextlib.contextmanager
def running_fleet(shape: FleetShape) -> Generator[list[int]]:
    """Start fresh engines; yield their ports."""
    command = [sys.executable, "-m", "headrace", "sim", "engine", *shape.arguments]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(shape.replicas)]
    try:
        ports = [_port_of(engine) for engine in started]
        _wait_ready(ports)
        yield ports
    finally:
        for engine in started:
            engine.terminate()
        for engine in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                engine.wait(10)
            engine.kill()
            engine.wait()
            if engine.stdout is not None:
                engine.stdout.close()


def _port_of(engine: "subprocess.Popen[str]") -> int:
    assert engine.stdout is not None
    line = engine.stdout.readline()
    try:
        return int(line.partition(" ")[0].rpartition(":")[2])
    except ValueError as error:
        raise BenchmarkError(f"a simulated engine did not start: {line!r}") from error


def _wait_ready(ports: Sequence[int]) -> None:
    end_mono_s = time.monotonic() + START_S
    for port in ports:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                pass
            if time.monotonic() > end_mono_s:
                raise BenchmarkError(f"the simulated engine on port {port} is not ready after {START_S:g} s")
            time.sleep(0.05)
