"""`python -m benchmarks.fit`: measure an engine, fit step times, predict another load, hold it against measurements."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import yaml

from benchmarks.fit.embedded import SHAPE, RunningServer, cpu_clock, running_embedded
from benchmarks.fit.streams import Server, plan_of
from benchmarks.fit.verdict import judge
from benchmarks.machine import busy_cpu_s, read_machine
from headrace.simulation.calibration import parse_calibration, render_calibration
from headrace.simulation.fitting import fit
from headrace.simulation.model import CacheKind
from headrace.simulation.replay import replay
from headrace.simulation.samples import EngineShape, MeasuredRun, PlannedRequest, Samples, parse_samples

TIME_NOTE = ", moments in its own CPU seconds"
KINDS = {
    "llamacpp": CacheKind.SLOTS,
    "vllm": CacheKind.BLOCK_HASH,
    "sglang": CacheKind.RADIX,
    "tensorrt-llm": CacheKind.BLOCK_HASH,
}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measure = verbs.add_parser("measure", help="measure runs to fit to")
    _add_server(measure)
    measure.add_argument("--streams", default="1,2,4")
    measure.add_argument(
        "--lengths", default="1,2,4,8,16,32,96,288", help="prompt tokens; short ones show what few rows take"
    )
    measure.add_argument("--output", type=int, default=48, help="tokens to generate")
    measure.add_argument("--repeats", type=int, default=3)
    measure.add_argument("--engine", choices=sorted(KINDS), default="llamacpp", help="how the server at --url batches")
    measure.add_argument("--engine-name", default="", help="name and version of the engine at --url")
    measure.add_argument("--max-sequences", type=int, default=256)
    measure.add_argument("--max-batched-tokens", type=int, default=2048)
    measure.add_argument("--context", type=int, default=2048)
    measure.add_argument("--kv-tokens", type=int, default=65_536)
    measure.add_argument("--out", type=Path, required=True)
    fitting = verbs.add_parser("fit", help="fit step times to measured runs")
    fitting.add_argument("samples", type=Path)
    fitting.add_argument("--out", type=Path, required=True)
    predict = verbs.add_parser("predict", help="predict a load that was not measured; commit the file before comparing")
    predict.add_argument("samples", type=Path, help="for the engine's shape")
    predict.add_argument("calibration", type=Path)
    predict.add_argument("--streams", type=int, default=8)
    predict.add_argument("--length", type=int, default=192, help="prompt tokens")
    predict.add_argument("--output", type=int, default=48)
    predict.add_argument("--stagger", type=float, default=0.005)
    predict.add_argument("--out", type=Path, required=True)
    compare = verbs.add_parser("compare", help="measure what was predicted, and judge; exit 3 if a bound is missed")
    _add_server(compare)
    compare.add_argument("prediction", type=Path)
    compare.add_argument("--runs", type=int, default=5)
    compare.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", help="a server with OpenAI's completions API; without it the embedded engine is started"
    )
    parser.add_argument("--model", default="", help="served model at --url")
    parser.add_argument("--threads", type=int, default=2, help="of the embedded engine")
    parser.add_argument("--stagger", type=float, default=0.005, help="seconds between the streams of a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--engine-cpu-time",
        action="store_true",
        help="measure moments in the CPU seconds of the embedded engine: for a busy machine, with --threads 1",
    )


@contextlib.contextmanager
def server_of(options: argparse.Namespace) -> Iterator[RunningServer]:
    if options.url:
        engine = getattr(options, "engine_name", "") or "unnamed"
        yield RunningServer(url=options.url, model=options.model, engine=engine)
        return
    with running_embedded(options.threads) as running:
        yield running


def measure(options: argparse.Namespace) -> int:
    shape = SHAPE
    if options.url:
        shape = EngineShape(
            cache=KINDS[options.engine],
            max_sequences=options.max_sequences,
            max_batched_tokens=options.max_batched_tokens,
            context_tokens=options.context,
            kv_tokens=options.kv_tokens,
            block_tokens=16 if KINDS[options.engine] is CacheKind.BLOCK_HASH else 1,
            is_prefill_mixed=options.engine != "sglang",
        )
    plans = [
        plan_of(int(streams), int(length), options.output, options.stagger)
        for length in options.lengths.split(",")
        for streams in options.streams.split(",")
    ]
    with server_of(options) as running:
        runs = measure_plans(running, options, options.seed, plans * options.repeats, warm_up=plans)
    machine = read_machine()
    samples = Samples(
        engine=running.engine + (TIME_NOTE if options.engine_cpu_time else ""),
        model=running.model,
        hardware=f"{machine.processor}, {machine.cores} cores",
        measured_at=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        shape=shape,
        runs=runs,
    )
    write(options.out, samples.model_dump(mode="json"))
    return 0


def measure_plans(
    running: RunningServer,
    options: argparse.Namespace,
    seed: int,
    plans: list[list[PlannedRequest]],
    *,
    warm_up: list[list[PlannedRequest]],
) -> list[MeasuredRun]:
    """Run plans one after the other, and say of each how busy the machine was."""

    async def run_all() -> list[MeasuredRun]:
        clock = cpu_clock(running.pid) if options.engine_cpu_time and running.pid else time.perf_counter
        server = Server(running.url, running.model, seed, has_slots=running.pid is not None, clock=clock)
        try:
            await server.calibrate_length()
            for plan in warm_up:
                await server.run(plan)
            return [await _run_one(server, plan) for plan in plans]
        finally:
            await server.close()

    return asyncio.run(run_all())


async def _run_one(server: Server, plan: list[PlannedRequest]) -> MeasuredRun:
    busy_before_s, started_mono_s = busy_cpu_s(), time.monotonic()
    run = await server.run(plan)
    busy_cores = (busy_cpu_s() - busy_before_s) / (time.monotonic() - started_mono_s)
    print(
        f"{len(plan)} streams x {plan[0].input_tokens} tokens: "
        f"TTFT p50 {median(request.ttft_s for request in run.requests) * 1000:.0f} ms, "
        f"TPOT p50 {median(request.tpot_s or 0 for request in run.requests) * 1000:.1f} ms, "
        f"machine busy {busy_cores:.2f} cores",
        flush=True,
    )
    return run


def fit_samples(options: argparse.Namespace) -> int:
    calibration = fit(parse_samples(options.samples.read_text()))
    options.out.write_text(render_calibration(calibration))
    print(options.out.read_text())
    return 0


def predict(options: argparse.Namespace) -> int:
    samples, calibration = (
        parse_samples(options.samples.read_text()),
        parse_calibration(options.calibration.read_text()),
    )
    plan = plan_of(options.streams, options.length, options.output, options.stagger)
    replayed = replay(samples.shape, calibration, plan).requests
    prediction = {
        "engine": samples.engine,
        "model": samples.model,
        "streams": options.streams,
        "input_tokens": options.length,
        "output_tokens": options.output,
        "stagger_s": options.stagger,
        "ttft_p50_s": round(median(request.ttft_s for request in replayed), 6),
        "tpot_p50_s": round(median(request.tpot_s or 0.0 for request in replayed), 6),
        "ttft_s": [round(request.ttft_s, 6) for request in replayed],
        "tpot_s": [round(request.tpot_s or 0.0, 6) for request in replayed],
    }
    write(options.out, prediction)
    print(options.out.read_text())
    return 0


def compare(options: argparse.Namespace) -> int:
    prediction = yaml.safe_load(options.prediction.read_text())
    plan = plan_of(
        prediction["streams"], prediction["input_tokens"], prediction["output_tokens"], prediction["stagger_s"]
    )
    with server_of(options) as running:
        runs = measure_plans(running, options, options.seed + 1, [plan] * options.runs, warm_up=[plan])
    verdicts = judge(prediction["ttft_p50_s"], prediction["tpot_p50_s"], runs)
    lines = [verdict.line() for verdict in verdicts]
    write(
        options.out,
        {
            "engine": running.engine + (TIME_NOTE if options.engine_cpu_time else ""),
            "verdicts": lines,
            "runs": [run.model_dump(mode="json") for run in runs],
        },
    )
    print("\n".join(lines))
    return 0 if all(verdict.is_met for verdict in verdicts) else 3


def write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


if __name__ == "__main__":
    parsed = parse_arguments(sys.argv[1:])
    sys.exit({"measure": measure, "fit": fit_samples, "predict": predict, "compare": compare}[parsed.verb](parsed))
