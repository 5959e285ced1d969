"""Runs the scenarios and prints for each what a request or chunk costs: CPU, Python and C calls, garbage."""

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import uvloop

from benchmarks.interpreter import read_interpreter
from benchmarks.micro import routing
from benchmarks.micro.gateway import TENANCY, LocalGateway, local_gateway
from benchmarks.micro.traffic import Traffic, all_traffic
from headrace.fleet.deploy.worker_process import ALLOCATION

CALLS_OVER = 3
"""Rounds over which calls are counted: the count is the same for each."""
HEADINGS = f"{'':14} {'per':8} us lowest  median  process  Python calls  C calls  garbage"
GC_THRESHOLDS = (50_000, 10, 10)
"""As the gateway's own process sets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one scenario costs, per request or per chunk."""

    kind: str
    per: str
    cpu_us_lowest: float
    """CPU of the event loop's thread, in the quietest batch."""
    cpu_us_median: float
    process_cpu_us: float
    """With the thread that writes journal and request log, over all batches."""
    python_calls: float
    c_calls: float
    garbage_objects: float
    """Left to the cyclic collector, rather than freed by reference count."""

    def __str__(self) -> str:
        cpu = f"{self.cpu_us_lowest:9.2f} {self.cpu_us_median:7.2f} {self.process_cpu_us:8.2f}"
        calls = f"{self.python_calls:13.2f} {self.c_calls:8.2f}"
        return f"{self.kind:14} {self.per:8} {cpu} {calls} {self.garbage_objects:8.2f}"


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["routing"]:
        return routing.main(arguments[1:])
    kinds = [traffic.kind for traffic in all_traffic("")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks micro", description=__doc__)
    parser.add_argument("--batches", type=int, default=60, help="batches per scenario (default 60)")
    parser.add_argument("--scenarios", default=",".join(kinds), help=f"comma-separated: {', '.join(kinds)}")
    parser.add_argument("--callees", type=int, metavar="N", default=0, help="list the N functions called most often")
    parser.add_argument("--limits", choices=TENANCY, default="two", help="what is declared of callers (default two)")
    parser.add_argument("--tenants", type=int, default=1, help="declared tenants (default 1)")
    parser.add_argument("--places", type=int, help="places of each endpoint's queue; default: no known bound")
    parser.add_argument("--keys", type=int, default=1, help="known keys (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    chosen = parser.parse_args(arguments)
    if not ALLOCATION.keys() <= os.environ.keys():  # read by the C library when a process begins
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**ALLOCATION, **os.environ})
    python = read_interpreter(Path(sys.executable))
    print(f"Python {python.version}, {python.build}", flush=True)
    print(HEADINGS)
    costs: list[Cost] = []
    for kind in chosen.scenarios.split(","):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, tempfile.TemporaryDirectory() as folder:
            callers = {"limits": chosen.limits, "tenants": chosen.tenants, "keys": chosen.keys, "places": chosen.places}
            cost, calls = runner.run(measure(kind, Path(folder), chosen.batches, callers))
        costs.append(cost)
        print(cost, flush=True)
        for name, count in sorted(calls.items(), key=lambda pair: -pair[1])[: chosen.callees]:
            print(f"    {count:7.2f} {name}")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"python": sys.version, "costs": [asdict(cost) for cost in costs]}, indent=1))
    return 0


async def measure(kind: str, folder: Path, batches: int, callers: dict[str, Any]) -> tuple[Cost, dict[str, float]]:
    """Run one scenario. `callers`: as `local_gateway` takes it. Returns its cost, and calls by name."""
    declared = next(traffic for traffic in all_traffic("") if traffic.kind == kind)
    backends = declared.backends
    own = {name: value for name in ("limits", "places") if (value := getattr(declared, name)) is not None}
    async with local_gateway(folder, backends=backends, **(callers | own)) as gateway:
        traffic = next(traffic for traffic in all_traffic(gateway.key) if traffic.kind == kind)
        rounds = traffic.requests_per_batch // len(gateway.callers)
        for _ in range(2 + 2 * backends):  # connects to all, then warms every specialised instruction
            await _connect(gateway, traffic)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        units = rounds * len(gateway.callers) * traffic.units
        times = [await _timed(gateway, traffic, rounds) for _ in range(batches)]
        calls = await _count_calls(gateway, traffic)
        garbage = await _count_garbage(gateway, traffic, rounds)
    loop_us = [loop_s / units * 1e6 for loop_s, _ in times]
    return Cost(
        kind=kind,
        per=traffic.per,
        cpu_us_lowest=min(loop_us),
        cpu_us_median=median(loop_us),
        process_cpu_us=sum(all_s for _, all_s in times) / len(times) / units * 1e6,
        python_calls=sum(count for name, count in calls.items() if not name.startswith("C ")),
        c_calls=sum(count for name, count in calls.items() if name.startswith("C ")),
        garbage_objects=garbage / units,
    ), calls


async def _timed(gateway: LocalGateway, traffic: Traffic, rounds: int) -> tuple[float, float]:
    all_s = loop_s = 0.0

    def timed() -> bool:
        nonlocal all_s, loop_s
        all_s, loop_s = time.process_time(), time.thread_time()
        is_whole = all(_round(gateway, traffic) for _ in range(rounds))
        loop_s = time.thread_time() - loop_s
        return is_whole

    await _undisturbed(timed, gateway, traffic)
    await asyncio.sleep(0.002)  # the loop's timers, and the thread that writes
    return loop_s, time.process_time() - all_s


async def _undisturbed(action: Callable[[], bool], gateway: LocalGateway, traffic: Traffic) -> None:
    """Do it again where a round was not whole, as its connections are there now."""
    while not action():
        await _answer_all(gateway, traffic)


async def _connect(gateway: LocalGateway, traffic: Traffic) -> None:
    """A round whose requests may need new connections, which take turns of the loop."""
    for caller in gateway.callers:
        for block in traffic.request:
            caller.protocol.data_received(block)
    await _answer_all(gateway, traffic)


async def _answer_all(gateway: LocalGateway, traffic: Traffic) -> None:
    while len(waiting := gateway.engines.with_requests()) < len(gateway.callers):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    _answer(gateway, traffic, waiting)


def _round(gateway: LocalGateway, traffic: Traffic) -> bool:
    """Every caller sends one request and gets its answer, all side by side. False: more of them went to one endpoint
    than ever before, as happens when the process stands still meanwhile, and the connection is still being made.
    """
    for caller in gateway.callers:
        receive = caller.protocol.data_received
        for block in traffic.request:
            receive(block)
    waiting = [wire for wire in gateway.engines.wires if wire.written]
    if len(waiting) < len(gateway.callers):
        return False
    _answer(gateway, traffic, waiting)
    return True


def _answer(gateway: LocalGateway, traffic: Traffic, waiting: list[Any]) -> None:
    for wire in waiting:
        wire.written.clear()
    for block in traffic.answer:
        for wire in waiting:
            wire.protocol.data_received(block)
    for caller in gateway.callers:
        if not caller.written[0].startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a caller was answered {caller.written[0]!r}")
        caller.written.clear()


async def _count_calls(gateway: LocalGateway, traffic: Traffic) -> dict[str, float]:
    """Calls by name, per unit: into Python code of headrace, and from there into C."""
    counted: dict[str, int] = {}

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event not in ("call", "c_call") or "headrace" not in frame.f_code.co_filename:
            return
        name = frame.f_code.co_qualname if event == "call" else f"C {getattr(called, '__qualname__', called)}"
        counted[name] = counted.get(name, 0) + 1

    def count() -> bool:
        counted.clear()
        sys.setprofile(note)
        is_whole = all(_round(gateway, traffic) for _ in range(CALLS_OVER))
        sys.setprofile(None)
        return is_whole

    await _undisturbed(count, gateway, traffic)
    units = CALLS_OVER * len(gateway.callers) * traffic.units
    return {name: count / units for name, count in counted.items()}


async def _count_garbage(gateway: LocalGateway, traffic: Traffic, rounds: int) -> int:
    found = 0

    def count() -> bool:
        nonlocal found
        gc.collect()
        gc.disable()
        is_whole = all(_round(gateway, traffic) for _ in range(rounds))
        found = gc.collect()
        gc.enable()
        return is_whole

    await _undisturbed(count, gateway, traffic)
    return found
