"""`python -m benchmarks neighbours`: what a flood does to a quiet tenant, in virtual time and for real.

Virtual: the gateway's own queue over simulated engines, the whole workload of benchmarks/workloads. `--real`: a gateway
worker before `headrace sim engine`, both as processes, for as long as `--seconds` says.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

WORKLOAD = Path(__file__).parent / "workloads" / "noisy-neighbour.json"


def main(arguments: Sequence[str]) -> int:
    """Print one line a run; exit 3 where a bound is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks neighbours", description=__doc__)
    parser.add_argument("--workload", type=Path, default=WORKLOAD, help="JSON file; default the committed one")
    parser.add_argument("--real", action="store_true", help="real processes instead of virtual time")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the real run (default 60)")
    chosen = parser.parse_args(arguments)
    if chosen.real:
        from benchmarks.neighbours_real import run_real

        found = run_real(chosen.seconds)
    else:
        found = _virtual(chosen.workload)
    print(json.dumps(found, indent=1))
    print("bounds kept" if found["is_kept"] else "bounds NOT kept")
    return 0 if found["is_kept"] else 3


def _virtual(path: Path) -> dict[str, object]:
    from headrace.rehearsal.neighbours import default_rules, run, step_s, tokens_per_s, view
    from headrace.rehearsal.workload import read_workload

    workload = read_workload(path)
    begun = time.process_time()
    alone = view(run(workload.only("quiet"), None), "quiet")
    fair, unordered = run(workload, default_rules()), run(workload, None)
    quiet, first_come = view(fair, "quiet"), view(unordered, "quiet")
    assert alone.ttft_p99_s is not None
    assert quiet.ttft_p99_s is not None
    bound_s = max(1.3 * alone.ttft_p99_s, alone.ttft_p99_s + 2 * step_s(fair))
    throughput_ratio = tokens_per_s(fair) / tokens_per_s(unordered)
    return {
        "quiet_requests": quiet.requests,
        "ttft_p99_s": {"alone": alone.ttft_p99_s, "queue": quiet.ttft_p99_s, "first_come": first_come.ttft_p99_s},
        "ttft_p50_s": {"alone": alone.ttft_p50_s, "queue": quiet.ttft_p50_s, "first_come": first_come.ttft_p50_s},
        "answered": {"queue": quiet.answered, "first_come": first_come.answered},
        "bound_s": bound_s,
        "step_s": step_s(fair),
        "tokens_per_s": {"queue": tokens_per_s(fair), "first_come": tokens_per_s(unordered)},
        "throughput_ratio": throughput_ratio,
        "cpu_s": round(time.process_time() - begun, 1),
        "is_kept": quiet.ttft_p99_s <= bound_s and throughput_ratio >= 0.92,
    }
