"""`python -m benchmarks simulated`: does one simulated engine keep its times with a thousand streams at 50 tokens/s?

The engine has one core, the load client the other. Timing error is the engine's own: when a token was written to its
socket against when it was due; gaps are what the client saw between two chunks, which a busy client widens.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from benchmarks.machine import busy_cpu_s, read_machine
from benchmarks.native import build_native
from benchmarks.problem import BenchmarkError

BOUND_MS = 10.0
"""Largest 99th percentile of the timing error that passes."""

STEP_MS = 20
START_S = 20.0
SPREAD_S = 4.0
"""Streams are opened over so long a time."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and tell by the exit status whether the bound was kept: 0 or 3."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulated", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=1000, help="tokens of each stream, 20 ms apart")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dialect", default="vllm", choices=["vllm", "sglang", "tensorrt-llm", "llamacpp"])
    chosen = parser.parse_args(arguments)
    found = [_round(chosen) for _ in range(chosen.rounds)]
    print(json.dumps({"rounds": found}, indent=1))
    best = min(found, key=lambda measured: measured["foreign_cores"])
    verdict = "kept" if best["error_p99_ms"] is not None and best["error_p99_ms"] < BOUND_MS else "NOT kept"
    print(
        f"p99 below {BOUND_MS:g} ms {verdict} in the quietest of {len(found)} rounds: timing error p50 "
        f"{best['error_p50_ms']} ms, p99 {best['error_p99_ms']} ms; gap p50 {best['gap_p50_ms']} ms, p99 "
        f"{best['gap_p99_ms']} ms; {best['cpu_us_per_token']} microseconds of CPU a token; "
        f"{best['foreign_cores']} cores of other work"
    )
    return 0 if verdict == "kept" else 3


def _round(chosen: argparse.Namespace) -> dict[str, Any]:
    machine = read_machine()
    command = [
        *(sys.executable, "-m", "headrace", "sim", "engine", "--dialect", chosen.dialect, "--step-ms", str(STEP_MS)),
        *("--numbered", "--kv-tokens", "8000000", "--served-model-name", "mock"),
        *("--max-sequences", str(chosen.streams), "--max-batched-tokens", "8192"),
    ]
    engine = subprocess.Popen(machine.pinned(machine.proxy_core, command), stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout is not None
        url = engine.stdout.readline().partition(" ")[0]
        _wait_ready(url)
        before, started = _timing(url), time.monotonic()
        busy_s = busy_cpu_s()
        client = _load(machine.pinned(machine.load_core, [str(build_native().load)]), url, chosen)
        after = _timing(url)
        busy_s = busy_cpu_s() - busy_s
        own_s = after["cpu_s"] - before["cpu_s"] + client["client_cpu_s"]
        elapsed_s = time.monotonic() - started
    finally:
        engine.terminate()
        engine.wait(20)
        if engine.stdout is not None:
            engine.stdout.close()
    return {
        "tokens": after["tokens"],
        "error_p50_ms": after["error_ms"]["p50"],
        "error_p99_ms": after["error_ms"]["p99"],
        "error_p999_ms": after["error_ms"]["p999"],
        "gap_p50_ms": client["gap"]["p50_ms"],
        "gap_p99_ms": client["gap"]["p99_ms"],
        "gap_mean_ms": client["gap"]["mean_ms"],
        "cpu_us_per_token": round((after["cpu_s"] - before["cpu_s"]) / after["tokens"] * 1e6, 2),
        "foreign_cores": round(max(0.0, busy_s - own_s) / elapsed_s, 2),
        "duration_s": round(elapsed_s, 1),
    }


def _load(program: list[str], url: str, chosen: argparse.Namespace) -> dict[str, Any]:
    command = [
        *program,
        *("--port", url.rpartition(":")[2], "--connections", str(chosen.streams), "--requests", str(chosen.streams)),
        *("--chunks", str(chosen.chunks), "--stream", "--spread-s", str(SPREAD_S)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkError(f"the load client failed: {done.stderr.strip()}")
    client = json.loads(done.stdout)
    if client["ok"] != chosen.streams:
        raise BenchmarkError(f"{client['ok']} of {chosen.streams} streams were whole: {client['first_failure']}")
    return client


def _wait_ready(url: str) -> None:
    ends_mono_s = time.monotonic() + START_S
    while time.monotonic() < ends_mono_s:
        try:
            if _timing(url)["phase"] == "ready":
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise BenchmarkError(f"the simulated engine was not ready after {START_S:g} s")


def _timing(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/sim/timing", timeout=10) as answer:
        return json.loads(answer.read())
