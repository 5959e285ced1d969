"""Every replica restarted, one after the other, at 80 % load: no request fails, streams included.

`HEADRACE_DRILL_KILLS` repeats it: `make drill-resume`.
"""

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until
from tests.harness.told_stream import ToldStream

from headrace.engines.simulated.text import expected_text

ROUNDS = min(5, int(os.environ.get("HEADRACE_DRILL_KILLS", "1")))
SEQUENCES = 4
"""Of each of two replicas: 80 % of both are six callers, half as much again as one replica can take."""
CALLERS = 6
TOKENS = 100


class Callers(threading.Thread):
    """Callers that send one stream after the other, and check each."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(daemon=True)
        self.instance = instance
        self.done: list[ToldStream] = []
        self.failures: list[str] = []
        self.is_over = threading.Event()
        self._numbers = itertools.count()

    def run(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        await asyncio.gather(*(self._one() for _ in range(CALLERS)))

    async def _one(self) -> None:
        while not self.is_over.is_set():
            messages = [{"role": "user", "content": f"number {next(self._numbers)}"}]
            body = {"model": "tiny", "messages": messages, "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
            stream = ToldStream(body)
            try:
                await stream.read(self.instance.port, self.instance.key)
            except (OSError, AssertionError, asyncio.IncompleteReadError) as error:
                self.failures.append(repr(error))
                continue
            if not stream.is_whole or stream.text != expected_text("tiny", messages, TOKENS):
                self.failures.append(f"{stream.error} {stream.text}")
            self.done.append(stream)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    made = Instance(tmp_path)
    program = [sys.executable, "-m", "headrace", "sim", "engine", "--dialect", "vllm", "--step-ms", "20", "--"]
    made.declaration["models"] = {"tiny": {"source": "file:model", "context_tokens": 512}}
    made.declaration["gateway"]["resume"] = {"drain_after_s": 0.5}
    made.declaration["pools"]["chat"] = {
        "model": "tiny",
        "engine": "vllm",
        "replicas": 2,
        "stop_s": 60,
        "batching": {"max_sequences": SEQUENCES},
        "runtime": {"command": program, "device": "cpu"},
    }
    made.write()
    yield made
    made.end()


def test_a_rolling_restart_fails_nobody(instance: Instance) -> None:
    """`engine restart` of each replica under load takes seconds, and every stream ends whole, to the token."""
    instance.up()
    callers = Callers(instance)
    callers.start()
    wait_until(lambda: len(callers.done) + len(callers.failures) >= CALLERS, "the first answers")
    assert callers.failures == []
    took_s: list[float] = []
    before = instance.engine_pids()
    for _ in range(ROUNDS):
        for replica in ("chat/0", "chat/1"):
            begun_mono_s = time.monotonic()
            done = instance.run("engine", "restart", replica)
            assert done.returncode == 0, done.stderr
            took_s.append(time.monotonic() - begun_mono_s)
    count = len(callers.done)
    wait_until(lambda: len(callers.done) >= count + CALLERS, "answers after it")
    callers.is_over.set()
    callers.join(60)
    assert callers.failures == []
    assert all(pid != before[replica] for replica, pid in instance.engine_pids().items())
    if ROUNDS > 1:
        gaps_s = sorted(stream.longest_gap_s for stream in callers.done)
        sys.stdout.write(
            f"\nrolling restart: {len(took_s)} restarts, {CALLERS} callers, {len(callers.done)} streams, 0 failed, "
            f"a restart took {min(took_s):.1f} to {max(took_s):.1f} s; longest gap of a stream p99 "
            f"{gaps_s[int(len(gaps_s) * 0.99)] * 1e3:.0f} ms\n"
        )
