"""`python -m benchmarks rehearsal`: a large fleet and a long trace in virtual time: the time and memory it takes.

The trace is tiled: copies of it run side by side, one for every eight replicas, then the next ones; outputs keep their
length.
"""

import argparse
import resource
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import read_machine
from benchmarks.measure import say
from benchmarks.routing.capacity import capacity_per_s, fleet_model
from benchmarks.routing.engines import FleetShape
from headrace.declaration.routing_section import Routing
from headrace.rehearsal.routing import declared_policy, rehearse
from headrace.rehearsal.routing_trace import at_rate, read_mooncake, tiled

TRACE = Path(__file__).parent / "mooncake_1000.jsonl"
REPLICAS_A_COPY = 8
SAY_EVERY = 100_000


def main(arguments: Sequence[str]) -> int:
    chosen = _parse(arguments)
    shape = FleetShape(
        replicas=REPLICAS_A_COPY,
        model=chosen.model,
        gpu=chosen.gpu,
        context_tokens=chosen.context_tokens,
        time_scale=1.0,
    )
    trace = read_mooncake(chosen.trace)
    per_s = chosen.load * capacity_per_s(shape, trace[:1000])
    copies = max(1, chosen.replicas // REPLICAS_A_COPY)
    requests = tiled(at_rate(trace, per_s), chosen.requests, copies_at_once=copies)
    machine = read_machine()
    began_mono_s, began_cpu_s = time.monotonic(), time.process_time()
    ttft_s, prompt_tokens, cached_tokens, output_tokens, failed = array("d"), 0, 0, 0, 0
    for record in rehearse(fleet_model(shape), chosen.replicas, requests, declared_policy(Routing())):
        if record.first_token_at_s is None:
            failed += 1
            continue
        ttft_s.append(record.first_token_at_s - record.arrived_at_s)
        prompt_tokens += record.input_tokens
        cached_tokens += record.cached_tokens
        output_tokens += record.output_tokens
        if len(ttft_s) % SAY_EVERY == 0:
            say(f"{len(ttft_s):,} requests after {time.monotonic() - began_mono_s:.0f} s")
    wall_s, cpu_s = time.monotonic() - began_mono_s, time.process_time() - began_cpu_s
    order = sorted(ttft_s)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"`python -m benchmarks rehearsal {' '.join(sys.argv[2:])}`: {len(order):,} requests answered, {failed:,} not, "
        f"{output_tokens:,} tokens generated, on {chosen.replicas:,} replicas of {shape.model} on {shape.gpu} at "
        f"{chosen.load:.0%} load ({per_s * copies:.0f} requests/s): {wall_s:.0f} s, {cpu_s:.0f} s of CPU, "
        f"{peak_mib:.0f} MiB at most. TTFT p50 {order[len(order) // 2]:.3f} s, "
        f"p99 {order[len(order) * 99 // 100]:.2f} s; "
        f"prefix hits {cached_tokens / max(1, prompt_tokens):.1%}. {machine.processor}, {machine.cores} cores."
    )
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks rehearsal", description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--load", type=float, default=0.7, help="of what round robin keeps up with; default 0.7")
    parser.add_argument("--trace", type=Path, default=TRACE, help="JSONL as Mooncake's")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--context-tokens", type=int, default=131072)
    return parser.parse_args(arguments)
