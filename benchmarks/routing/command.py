"""`python -m benchmarks routing`: replays recorded chat traffic through headrace, its peers and round robin.

Every router meets the same requests at the same times, before fresh simulated vLLM replicas of its own, one router
after the other, seed by seed. Load 1 is the rate at which the fleet just keeps up under round robin, found in virtual
time.
"""

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

from benchmarks.machine import busy_cpu_s, read_machine
from benchmarks.measure import say
from benchmarks.native import CACHE
from benchmarks.problem import BenchmarkError
from benchmarks.routing.capacity import capacity_per_s as load_1_per_s
from benchmarks.routing.client import Sample, replay
from benchmarks.routing.engines import FleetShape, running_fleet
from benchmarks.routing.prompts import Prompts
from benchmarks.routing.routers import DEFAULT_ROUTERS, start_router, version_of
from benchmarks.routing.summary import RunFigures, sum_up, table, verdicts
from headrace.rehearsal.routing_trace import TracedRequest, at_rate, from_its_start, read_azure, read_mooncake

TRACE = Path(__file__).parent / "mooncake_1000.jsonl"


def main(arguments: Sequence[str]) -> int:
    chosen = _parse(arguments)
    shape = FleetShape(
        replicas=chosen.replicas,
        model=chosen.model,
        gpu=chosen.gpu,
        context_tokens=chosen.context_tokens,
        time_scale=chosen.time_scale,
    )
    machine = read_machine()
    folder = CACHE / "routing"
    shutil.rmtree(folder, ignore_errors=True)
    found: dict[tuple[str, float], list[RunFigures]] = {}
    raw: list[dict[str, object]] = []
    capacity_per_s = load_1_per_s(shape, _read(chosen, seed=0))
    say(f"load 1 is {capacity_per_s:.2f} requests a simulated second on {shape.replicas} replicas")
    for seed in chosen.seeds:
        trace = _read(chosen, seed=seed)
        for load in chosen.loads:
            timed = at_rate(trace, load * capacity_per_s)
            for router in _shuffled(chosen.routers, seed):
                busy_s, started_s = busy_cpu_s(), time.monotonic()
                samples = _run(router, timed, shape, folder / f"{router.replace(':', '-')}-{load}-{seed}")
                busy_ratio = (busy_cpu_s() - busy_s) / (time.monotonic() - started_s) / machine.cores
                figures = sum_up(
                    samples, time_scale=shape.time_scale, ttft_slo_s=chosen.ttft_slo, tpot_slo_s=chosen.tpot_slo
                )
                found.setdefault((router, load), []).append(figures)
                raw.append({"router": router, "load": load, "seed": seed, "busy_ratio": busy_ratio, **asdict(figures)})
                say(f"seed {seed}, load {load:.0%}, {router}: {figures}; machine {busy_ratio:.0%} busy")
    text = _report(chosen, shape, capacity_per_s, found, machine.processor, machine.cores)
    print(text)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"report": text, "runs": raw}, indent=1))
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks routing", description=__doc__)
    parser.add_argument("--routers", type=_words, default=DEFAULT_ROUTERS, help=f"default {','.join(DEFAULT_ROUTERS)}")
    parser.add_argument("--loads", type=_numbers, default=(0.7, 0.95), help="default 0.7,0.95")
    parser.add_argument("--seeds", type=lambda text: tuple(map(int, text.split(","))), default=(1, 2, 3))
    parser.add_argument("--trace", type=Path, default=TRACE, help="JSONL as Mooncake's, or CSV as Azure's")
    parser.add_argument(
        "--requests", type=int, help="only the trace's first so many; of a CSV, seed N takes the Nth so many"
    )
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--context-tokens", type=int, default=131072)
    parser.add_argument("--time-scale", type=float, default=1.0, help="simulated seconds a second; below 1: slower")
    parser.add_argument("--ttft-slo", type=float, default=2.0, help="seconds, default 2")
    parser.add_argument("--tpot-slo", type=float, default=0.05, help="seconds, default 0.05")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every run to FILE")
    return parser.parse_args(arguments)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


def _read(chosen: argparse.Namespace, *, seed: int) -> list[TracedRequest]:
    if chosen.trace.suffix == ".csv":
        trace = read_azure(chosen.trace)
        if seed and chosen.requests is not None:  # its clock is fine enough: a seed is another window of it
            start = (seed - 1) * chosen.requests % len(trace)
            trace = from_its_start(trace[start : start + chosen.requests])
    else:
        trace = read_mooncake(chosen.trace, requests=chosen.requests, seed=seed)
    room = chosen.context_tokens - 64
    return [request for request in trace if request.input_tokens + request.output_tokens <= room]


def _shuffled(routers: Sequence[str], seed: int) -> list[str]:
    """Another order for each seed, so that none always runs first."""
    return Random(seed).sample(list(routers), len(routers))


def _run(router: str, trace: Sequence[TracedRequest], shape: FleetShape, folder: Path) -> list[Sample]:
    prompts = Prompts(shape.model)
    plan = [(request.at_s / shape.time_scale, prompts.body(number, request)) for number, request in enumerate(trace)]
    with running_fleet(shape) as ports:
        running = start_router(router, ports, shape.model, folder, shape.time_scale)
        try:
            samples = asyncio.run(replay(running.port, running.key, plan))
        finally:
            running.stop()
    failures = [sample.failure for sample in samples if sample.failure is not None]
    if len(failures) > len(samples) / 2:
        raise BenchmarkError(f"{router}: {len(failures)} of {len(samples)} requests failed: {failures[0]}")
    return samples


def _report(
    chosen: argparse.Namespace,
    shape: FleetShape,
    capacity_per_s: float,
    found: dict[tuple[str, float], list[RunFigures]],
    processor: str,
    cores: int,
) -> str:
    runs = [run for each in found.values() for run in each]
    versions = ", ".join(f"{router} {version_of(router)}" for router in chosen.routers)
    head = (
        f"`python -m benchmarks routing {' '.join(sys.argv[2:])}`: {runs[0].requests} requests of {chosen.trace.name}, "
        f"{len(chosen.seeds)} seeds; {shape.replicas} simulated vLLM replicas of {shape.model} on {shape.gpu}, "
        f"{shape.time_scale:g} simulated seconds a second; load 1 is {capacity_per_s:.2f} requests/s; objectives TTFT "
        f"{chosen.ttft_slo:g} s and TPOT {chosen.tpot_slo * 1000:g} ms; {processor}, {cores} cores; "
        f"{sum(run.late for run in runs)} of {sum(run.requests for run in runs)} requests left the client late. "
        f"{versions}."
    )
    return "\n\n".join([head, table(found, chosen.routers), *verdicts(found, chosen.routers)])
