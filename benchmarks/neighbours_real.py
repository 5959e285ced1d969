"""The noisy neighbour for real: `headrace up` before a simulated engine as a process, two tenants with their own keys.

Three runs of the same arrivals: the quiet tenant alone, both through the queue, both with no known bound (the order of
the engine).
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from benchmarks.problem import BenchmarkError
from benchmarks.running import START_S, Running, free_port, start_program, wait_until_answering
from benchmarks.targets.headrace import find_key

PLACES = 64
STEP_MS = 40
NOISY_PER_S, QUIET_PER_S = 53.0, 1.0
"""As in benchmarks/workloads/noisy-neighbour.json: ten times what the engine can do, and a request a second."""
NOISY_TOKENS, QUIET_TOKENS = (200, 400), (50, 150)
DRAIN_S = 30.0
"""Longest wait for quiet requests that are still running at the end."""
DECLARATION = """\
version: 1
gateway: {{listen: "127.0.0.1:{port}", control: "127.0.0.1:{control_port}"}}
models: {{mock: {{}}}}
pools:
  mock:
    model: mock
    engine: vllm
    endpoints: ["http://127.0.0.1:{engine_port}"]
    {batching}
tenants: {{noisy: {{}}, quiet: {{}}}}
"""
Times = list[float | None]
"""Seconds to the first token of each request; None: it got none."""


def run_real(seconds: float) -> dict[str, object]:
    """Measure all three runs, one after the other."""
    with _engine() as engine_port:
        alone = _run(engine_port, seconds, is_bounded=True, is_noisy=False)
        queued = _run(engine_port, seconds, is_bounded=True, is_noisy=True)
        unordered = _run(engine_port, seconds, is_bounded=False, is_noisy=True)
    bound_s = max(1.3 * _at(alone, 0.95), _at(alone, 0.95) + 2 * STEP_MS / 1000)
    return {
        "seconds": seconds,
        "quiet_requests": len(queued),
        "answered": {name: sum(each is not None for each in run) for name, run in _named(alone, queued, unordered)},
        "ttft_p50_s": {name: _at(run, 0.5) for name, run in _named(alone, queued, unordered)},
        "ttft_p95_s": {name: _at(run, 0.95) for name, run in _named(alone, queued, unordered)},
        "ttft_max_s": {name: _at(run, 1.0) for name, run in _named(alone, queued, unordered)},
        "bound_p95_s": bound_s,
        "is_kept": _at(queued, 0.95) <= bound_s,
    }


def _named(alone: Times, queued: Times, unordered: Times) -> tuple[tuple[str, Times], ...]:
    return ("alone", alone), ("queue", queued), ("engine's order", unordered)


def _at(times: Times, share: float) -> float:
    """That share of the requests had their first token by then; without one counts as never."""
    ordered = sorted(float("inf") if each is None else each for each in times)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 4) if ordered else float("inf")


@contextlib.contextmanager
def _engine() -> Iterator[int]:
    command = [sys.executable, "-m", "headrace", "sim", "engine", "--dialect", "vllm", "--served-model-name", "mock"]
    command += ["--step-ms", str(STEP_MS), "--max-sequences", str(PLACES), "--max-batched-tokens", "2048"]
    command += ["--kv-tokens", "1000000"]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout is not None
        yield int(engine.stdout.readline().split()[0].rpartition(":")[2])
    finally:
        engine.terminate()
        engine.wait(20)
        if engine.stdout is not None:
            engine.stdout.close()


def _run(engine_port: int, seconds: float, *, is_bounded: bool, is_noisy: bool) -> Times:
    with tempfile.TemporaryDirectory() as folder:
        running, keys = _start(Path(folder), engine_port, is_bounded=is_bounded)
        try:
            return asyncio.run(_traffic(running.port, keys, seconds, is_noisy=is_noisy))
        finally:
            running.stop()


def _start(folder: Path, engine_port: int, *, is_bounded: bool) -> tuple[Running, dict[str, str]]:
    port, control_port = free_port(), free_port()
    batching = (
        f"batching: {{max_sequences: {PLACES}, batched_tokens: 2048}}" if is_bounded else "probe: {interval_s: 300}"
    )
    declaration = folder / "headrace.yaml"
    declaration.write_text(
        DECLARATION.format(port=port, control_port=control_port, engine_port=engine_port, batching=batching)
    )
    environment = {"HEADRACE_STATE_DIR": str(folder / "state"), "HEADRACE_CACHE_DIR": str(folder / "cache")}
    program = str(Path(sys.executable).parent / "headrace")
    command = [program, "up", "--config", str(declaration)]
    running = start_program(
        "headrace", command, folder=folder, port=port, key="none", model="mock", environment=environment
    )
    try:
        keys = {tenant: _make_key(program, tenant, running, declaration, environment) for tenant in ("noisy", "quiet")}
        running.key = keys["quiet"]
        wait_until_answering(running)
    except BaseException:
        running.stop()
        raise
    return running, keys


def _make_key(program: str, tenant: str, running: Running, declaration: Path, environment: dict[str, str]) -> str:
    command = [program, "keys", "create", "--tenant", tenant, "--json", "--config", str(declaration)]
    ends_mono_s = time.monotonic() + START_S
    while True:
        running.require_alive()
        told = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        if told.returncode == 0:
            return find_key(told.stdout)
        if time.monotonic() > ends_mono_s:
            raise BenchmarkError(f"headrace keys create failed: {told.stderr.strip()[-300:]}")
        time.sleep(0.2)


async def _traffic(port: int, keys: dict[str, str], seconds: float, *, is_noisy: bool) -> Times:
    chance, quiet = Random(7), list[asyncio.Task[float | None]]()
    noisy: set[asyncio.Task[float | None]] = set()
    tasks = [_arrive(port, keys["quiet"], QUIET_PER_S, QUIET_TOKENS, seconds, Random(8), quiet.append)]
    if is_noisy:
        tasks.append(_arrive(port, keys["noisy"], NOISY_PER_S, NOISY_TOKENS, seconds, chance, noisy.add))
    await asyncio.gather(*tasks)
    if quiet:
        await asyncio.wait(quiet, timeout=DRAIN_S)
    found = [task.result() if task.done() and not task.cancelled() else None for task in quiet]
    for task in (*noisy, *quiet):
        task.cancel()
    await asyncio.gather(*noisy, *quiet, return_exceptions=True)
    return found[len(found) // 10 :]  # the first tenth fills the engine


async def _arrive(
    port: int,
    key: str,
    per_s: float,
    tokens: tuple[int, int],
    seconds: float,
    chance: Random,
    keep: Callable[[asyncio.Task[float | None]], object],
) -> None:
    ends_mono_s, next_mono_s = time.monotonic() + seconds, time.monotonic()
    number = 0
    while (next_mono_s := next_mono_s + chance.expovariate(per_s)) < ends_mono_s:
        await asyncio.sleep(max(0.0, next_mono_s - time.monotonic()))
        number += 1
        prompt = f"{number} " + "word " * chance.randint(50, 200)
        keep(asyncio.ensure_future(_ask(port, key, prompt, chance.randint(*tokens))))


async def _ask(port: int, key: str, prompt: str, output_tokens: int) -> float | None:
    """Seconds to the first event with text; the answer is read to its end."""
    body = json.dumps(
        {
            "model": "mock",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    begun, first = time.monotonic(), None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        writer.write(head.encode() + body)
        if b" 200 " not in await reader.readline():
            return None
        async for line in reader:
            if first is None and line.startswith(b"data: ") and b'"content":"' in line and b'"content":""' not in line:
                first = time.monotonic() - begun
        return first
    except (OSError, ValueError):
        return first
    finally:
        writer.transport.abort()
