"""`python -m benchmarks`: measure and report. `... soak`: a million requests. `... micro`: our own code alone.

`... routing`: routers on recorded chat traffic. `... simulated`: whether one simulated engine keeps its times with a
thousand streams.
"""

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import simulated, soak
from benchmarks.interpreter import read_interpreter
from benchmarks.machine import read_machine
from benchmarks.measure import Bench, Results, say
from benchmarks.native import CACHE, FOLDER, build_native
from benchmarks.problem import BenchmarkError
from benchmarks.report import Run, now_text, publish, render
from benchmarks.scenarios import SCENARIOS
from benchmarks.targets.contract import Target
from benchmarks.targets.table import all_targets

PUBLISHABLE_NOISY_RATIO = 0.25
ON_REQUEST = ("litellm",)
"""Targets measured only when asked for: large to install, slow to measure."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    scenarios, targets = [scenario.kind for scenario in SCENARIOS], list(all_targets())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog='Example: make bench ARGS="--quick --targets direct,nginx,headrace"',
    )
    parser.add_argument("--quick", action="store_true", help="one short round: two to three minutes")
    parser.add_argument("--rounds", type=int, help="interleaved rounds; default 5, with --quick 1")
    parser.add_argument("--targets", type=_names(targets), help=f"comma-separated: {', '.join(targets)}")
    parser.add_argument("--scenarios", type=_names(scenarios), help=f"comma-separated: {', '.join(scenarios)}")
    parser.add_argument("--with-litellm", action="store_true", help="measure LiteLLM as well (400 MB to install)")
    parser.add_argument(
        "--headrace-python", type=Path, metavar="PROGRAM", help="run headrace on this Python (default: the one of this)"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="run headrace with its hot path compiled (a C compiler takes minutes)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument(
        "--publish", action="store_true", help="write the results into benchmarks/README.md and benchmarks/results"
    )
    return parser.parse_args(arguments)


def _names(allowed: Sequence[str]):
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["soak"]:
        return soak.main(arguments[1:])
    if arguments[:1] == ["simulated"]:
        return simulated.main(arguments[1:])
    if arguments[:1] == ["routing"]:
        from benchmarks.routing import command as routing  # imports headrace, for its engine model

        return routing.main(arguments[1:])
    if arguments[:1] == ["rehearsal"]:
        from benchmarks.routing import rehearsal  # imports headrace, for its engine model

        return rehearsal.main(arguments[1:])
    if arguments[:1] == ["neighbours"]:
        from benchmarks import neighbours  # imports headrace, as micro does

        return neighbours.main(arguments[1:])
    if arguments[:1] == ["micro"]:
        from benchmarks.micro import command as micro  # imports headrace, which measuring from outside must not

        return micro.main(arguments[1:])
    chosen = parse_arguments(arguments)
    machine = read_machine(read_interpreter(chosen.headrace_python) if chosen.headrace_python else None)
    native = build_native()
    default = [kind for kind in all_targets() if kind not in ON_REQUEST or chosen.with_litellm]
    known = all_targets(chosen.headrace_python, is_compiled=chosen.compiled)
    targets = [known[kind] for kind in (chosen.targets or default)]
    versions, skipped = _prepare(targets)
    folder = CACHE / "run"
    shutil.rmtree(folder, ignore_errors=True)
    rounds = chosen.rounds or (1 if chosen.quick else 5)
    bench = Bench(native=native, machine=machine, folder=folder, is_quick=chosen.quick, rounds=rounds)
    results = bench.run(
        [target for target in targets if target.kind not in skipped],
        [scenario for scenario in SCENARIOS if not chosen.scenarios or scenario.kind in chosen.scenarios],
    )
    run = Run(
        at=now_text(),
        command=" ".join(["python -m benchmarks", *arguments]),
        machine=machine,
        rounds=rounds,
        is_quick=chosen.quick,
        versions=versions,
        titles={target.kind: target.title for target in targets},
        set_ups={target.kind: target.set_up for target in targets},
        rust_peers=tuple(target.kind for target in targets if target.is_rust_peer),
        key_checks=results.key_checks,
        written_bytes=results.written_bytes,
        skipped={**skipped, **results.skipped},
        samples=results.samples,
    )
    return _deliver(run, results, json_file=chosen.json, is_publishing=chosen.publish)


def _prepare(targets: Sequence[Target]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the targets that can be measured here, and why the others cannot."""
    versions: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for target in targets:
        say(f"preparing {target.title}")
        try:
            versions[target.kind] = target.prepare()
        except BenchmarkError as problem:
            skipped[target.kind] = str(problem)
            say(f"left out: {problem}")
    return versions, skipped


def _deliver(run: Run, results: Results, *, json_file: Path | None, is_publishing: bool) -> int:
    if not results.samples:
        raise BenchmarkError("nothing was measured: " + "; ".join(run.skipped.values()))
    text = render(run)
    print(text)
    if json_file is not None:
        json_file.write_text(run.as_json())
    if is_publishing:
        if run.noisy_ratio > PUBLISHABLE_NOISY_RATIO:
            raise BenchmarkError(
                f"not published: {run.noisy_ratio:.0%} of the samples met other work on the machine; "
                "run again when it is quiet"
            )
        from benchmarks.plot import draw

        (FOLDER / "results").mkdir(exist_ok=True)
        (FOLDER / "results" / "results.json").write_text(run.as_json())
        draw(run, FOLDER / "results" / "results.png")
        publish(FOLDER / "README.md", text)
        say("published in benchmarks/README.md and benchmarks/results")
    return 0


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt  # so that whatever was started is stopped, as with Ctrl-C


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchmarkError as problem:
        sys.exit(f"benchmarks: {problem}")
    except KeyboardInterrupt:
        sys.exit("benchmarks: stopped")
