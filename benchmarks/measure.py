"""Runs the scenarios: every round visits every target, so that what changes on the machine meets all alike."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine, busy_cpu_s
from benchmarks.mock import start_mock
from benchmarks.native import NativePrograms
from benchmarks.problem import BenchmarkError
from benchmarks.running import Running, checks_keys, written_bytes_per_request
from benchmarks.sample import Sample, make_sample
from benchmarks.scenarios import Scenario, is_left_out
from benchmarks.targets.contract import Target

RSS_INTERVAL_S = 0.25
LOAD_BOUND_S = 180.0


@dataclass(slots=True, kw_only=True)
class Results:
    """All samples of one run, and what was left out."""

    samples: list[Sample] = field(default_factory=list[Sample])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Reason by target."""
    key_checks: dict[str, bool] = field(default_factory=dict[str, bool])
    written_bytes: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """What one request leaves in the target's files."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """One run's surroundings."""

    native: NativePrograms
    machine: Machine
    folder: Path
    is_quick: bool
    rounds: int

    def run(self, targets: Sequence[Target], scenarios: Sequence[Scenario]) -> Results:
        """Measure all `scenarios` on all `targets`; a target that fails is left out from there on, with its reason."""
        results = Results()
        for backends in sorted({scenario.backends for scenario in scenarios}):
            group = [scenario for scenario in scenarios if scenario.backends == backends]
            with ExitStack() as stack:
                mocks, running = self._start_group(targets, backends, results, stack)
                self._run_rounds([t for t in targets if t.kind in running], group, running, mocks, results)
        return results

    def _start_group(
        self, targets: Sequence[Target], backends: int, results: Results, stack: ExitStack
    ) -> tuple[list[Running], dict[str, Running]]:
        mocks: list[Running] = []
        for number in range(backends):
            mock = start_mock(self.native, self.machine, self.folder, name=f"mock-{backends}-{number}")
            stack.callback(mock.stop)
            mocks.append(mock)
        running: dict[str, Running] = {}
        for target in targets:
            if target.kind in results.skipped or (backends > 1 and target.kind == "direct"):
                continue
            say(f"starting {target.title} with {backends} mock engine{'s' if backends > 1 else ''}")
            try:
                started = target.start([m.port for m in mocks], self.machine, self.folder / f"{target.kind}-{backends}")
            except BenchmarkError as problem:
                results.skipped[target.kind] = str(problem)
                say(f"left out: {problem}")
                continue
            stack.callback(started.stop)
            running[target.kind] = started
            results.key_checks[target.kind] = checks_keys(started)
            results.written_bytes[target.kind] = written_bytes_per_request(started)
        return mocks, running

    def _run_rounds(
        self,
        targets: Sequence[Target],
        scenarios: Sequence[Scenario],
        running: dict[str, Running],
        mocks: list[Running],
        results: Results,
    ) -> None:
        for number in range(self.rounds):
            for scenario in scenarios:
                for target in targets:
                    if target.kind in results.skipped or is_left_out(scenario, is_slow_target=target.is_slow):
                        continue
                    others = [other for kind, other in running.items() if kind != target.kind]
                    try:
                        sample = self._measure(target, scenario, number, running[target.kind], others + mocks)
                    except BenchmarkError as problem:
                        results.skipped[target.kind] = f"in {scenario.kind}: {problem}"
                        say(f"left out from here on: {problem}")
                        continue
                    results.samples.append(sample)
                    say(_line(sample, self.rounds))

    def _measure(
        self, target: Target, scenario: Scenario, number: int, running: Running, others: list[Running]
    ) -> Sample:
        running.require_alive()
        self._load(running, scenario.warm_up_arguments(is_slow_target=target.is_slow), None)
        arguments = scenario.load_arguments(is_quick=self.is_quick, is_slow_target=target.is_slow)
        before = _Reading.now(running, others)
        peak = _Peak()
        told = self._load(running, arguments, peak)
        after = _Reading.now(running, others)
        elapsed_s = after.at_mono_s - before.at_mono_s
        ours_s = after.ours_cpu_s - before.ours_cpu_s
        return make_sample(
            target=target.kind,
            scenario=scenario.kind,
            number=number,
            told=told,
            cpu_s=after.target_cpu_s - before.target_cpu_s,
            is_proxied=running.process is not None,
            rss_peak_bytes=peak.rss_bytes,
            processes=peak.processes,
            foreign_cores=max(0.0, (after.busy_s - before.busy_s - ours_s) / elapsed_s),
            neighbour_cores=(after.neighbour_cpu_s - before.neighbour_cpu_s) / elapsed_s,
            load_cores=(after.load_cpu_s - before.load_cpu_s) / elapsed_s,
        )

    def _load(self, running: Running, arguments: list[str], peak: "_Peak | None") -> dict[str, Any]:
        """Run the load client against `running`; sample the target's memory meanwhile."""
        command = [str(self.native.load), "--port", str(running.port), "--key", running.key, "--model", running.model]
        with subprocess.Popen(
            self.machine.pinned(self.machine.load_core, [*command, *arguments]), stdout=subprocess.PIPE, text=True
        ) as client:
            deadline_mono_s = time.monotonic() + LOAD_BOUND_S
            while True:
                try:
                    text, _ = client.communicate(timeout=RSS_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    if peak is not None:
                        peak.look(running)
                    if time.monotonic() > deadline_mono_s:
                        client.kill()
                        raise BenchmarkError(f"the load client did not end within {LOAD_BOUND_S:.0f} s") from None
        if client.returncode != 0:
            raise BenchmarkError(f"the load client ended with status {client.returncode}")
        told: dict[str, Any] = json.loads(text)
        if told["ok"] == 0:
            raise BenchmarkError(f"no request succeeded: {told['first_failure'] or 'no answer'}")
        return told


@dataclass(slots=True)
class _Peak:
    rss_bytes: int = 0
    processes: int = 0

    def look(self, running: Running) -> None:
        usage = running.usage()
        self.rss_bytes = max(self.rss_bytes, usage.rss_bytes)
        self.processes = max(self.processes, usage.processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Counters at one moment; differences of two give the load in between."""

    at_mono_s: float
    busy_s: float
    target_cpu_s: float
    neighbour_cpu_s: float
    load_cpu_s: float

    @property
    def ours_cpu_s(self) -> float:
        return self.target_cpu_s + self.neighbour_cpu_s + self.load_cpu_s

    @classmethod
    def now(cls, running: Running, others: list[Running]) -> "_Reading":
        times = os.times()
        mocks = [other for other in others if other.name.startswith("mock")]
        idle = [other for other in others if other not in mocks]
        return cls(
            at_mono_s=time.monotonic(),
            busy_s=busy_cpu_s(),
            target_cpu_s=running.usage().cpu_s,
            neighbour_cpu_s=sum(other.usage().cpu_s for other in idle),
            load_cpu_s=sum(mock.usage().cpu_s for mock in mocks)
            + times.user
            + times.system
            + times.children_user
            + times.children_system,
        )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _line(sample: Sample, rounds: int) -> str:
    if sample.cpu_ms_per_1000_chunks is not None:
        cost = f"{sample.cpu_ms_per_1000_chunks:7.1f} ms CPU/1,000 chunks"
    elif sample.cpu_us_per_request is not None:
        cost = f"{sample.cpu_us_per_request:7.1f} us CPU/request    "
    else:
        cost = " " * 27
    noise = f"  NOISY: {sample.foreign_cores + sample.neighbour_cores:.2f} cores of others" if sample.is_noisy else ""
    failures = f"  {sample.failed} FAILED ({sample.first_failure})" if sample.failed else ""
    return (
        f"round {sample.round + 1}/{rounds} {sample.scenario:13} {sample.target:19} {sample.requests_per_s:8.0f}/s "
        f"{cost} RSS {sample.rss_peak_bytes / 1048576:5.0f} MiB{noise}{failures}"
    )
