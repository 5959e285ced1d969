"""A long mixed load on one headrace: memory must stay flat, gauges return to zero, every request have one ledger row.

Starts a mock engine with failures and a headrace of its own, or goes to one that runs (--url).
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import sqlalchemy

from benchmarks.machine import Machine, read_machine
from benchmarks.mock import start_mock
from benchmarks.native import NativePrograms, build_native
from benchmarks.problem import BenchmarkError
from benchmarks.process_tree import ProcessTable
from benchmarks.targets.headrace import HeadraceTarget

Seen = TypeVar("Seen")
GROWTH_BOUND_BYTES = 5 * 1024 * 1024
SETTLE_S = 60.0
"""How long gauges and ledger may take to settle after the last request."""
GAUGE = re.compile(r"^(headrace_\w*in_?flight\w*(?:\{[^}]*\})?) ([0-9.e+-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The gateway under the soak, and where its memory and books are read."""

    port: int
    key: str
    model: str
    control_url: str | None
    ledger_url: str | None
    root_pid: int | None
    mark: str = ""


@dataclass(slots=True, kw_only=True)
class SoakResult:
    """What was seen; None is not measured."""

    sent: int
    unexpected: int
    kinds: dict[str, Any]
    first_failure: str
    rss: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """At each mark of progress: bytes by process."""
    growth_bytes: dict[str, int] = field(default_factory=dict[str, int])
    """From the first mark to the last, by process."""
    in_flight: dict[str, float] | None = None
    ledger_rows: int | None = None
    complaints: list[str] = field(default_factory=list[str])


def main(arguments: Sequence[str]) -> int:
    chosen = parse_arguments(arguments)
    machine, native = read_machine(), build_native()
    with ExitStack() as stack:
        subject = _attach(chosen) if chosen.url else _start(chosen, native, machine, stack)
        result = soak(subject, chosen, native, machine)
    print(json.dumps(asdict(result), indent=1))
    for complaint in result.complaints:
        print(f"soak: {complaint}", file=sys.stderr)
    return 3 if result.complaints else 0


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks soak",
        description=__doc__,
        epilog="Example: python -m benchmarks soak --requests 1000000",
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--mark-every", type=int, default=100_000, help="requests between two looks at memory")
    parser.add_argument("--error-every", type=int, default=997, help="own mock: every so many requests fail; 0: never")
    parser.add_argument("--cut-every", type=int, default=1009, help="own mock: so many answers are cut; 0: never")
    parser.add_argument("--url", help="a gateway that runs already, http://127.0.0.1:PORT")
    parser.add_argument("--key", default="none", help="with --url: the key to show")
    parser.add_argument("--model", default="mock", help="with --url: the model to ask for")
    parser.add_argument("--control-url", help="with --url: where /metrics is")
    parser.add_argument("--ledger-url", help="with --url: SQLAlchemy URL of the ledger")
    parser.add_argument("--pid", type=int, help="with --url: the process whose tree is watched")
    return parser.parse_args(arguments)


def _attach(chosen: argparse.Namespace) -> Subject:
    url: str = chosen.url
    port = urlsplit(url).port
    if port is None:
        raise BenchmarkError(f"--url {url} names no port")
    return Subject(
        port=port,
        key=chosen.key,
        model=chosen.model,
        control_url=chosen.control_url,
        ledger_url=chosen.ledger_url,
        root_pid=chosen.pid,
    )


def _start(chosen: argparse.Namespace, native: NativePrograms, machine: Machine, stack: ExitStack) -> Subject:
    folder = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    failures = ("--error-every", str(chosen.error_every), "--cut-every", str(chosen.cut_every))
    mock = start_mock(native, machine, folder, arguments=failures)
    stack.callback(mock.stop)
    target = HeadraceTarget()
    target.prepare()
    running = target.start([mock.port], machine, folder / "headrace")
    stack.callback(running.stop)
    assert running.process is not None
    return Subject(
        port=running.port,
        key=running.key,
        model=running.model,
        control_url=f"http://127.0.0.1:{running.control_port}",
        ledger_url=f"sqlite:///{folder / 'headrace' / 'state' / 'headrace.db'}",
        root_pid=running.process.pid,
        mark=running.mark,
    )


def soak(subject: Subject, chosen: argparse.Namespace, native: NativePrograms, machine: Machine) -> SoakResult:
    """Send the mix, watch memory meanwhile, and compare the books afterwards."""
    rows_before = _settled_rows(subject, None)
    command = [str(native.load), "--mix", "--port", str(subject.port), "--key", subject.key, "--model", subject.model]
    command += ["--connections", str(chosen.connections), "--requests", str(chosen.requests), "--chunks", "4"]
    command += ["--progress-every", str(chosen.mark_every)]
    table, rss = ProcessTable(), list[dict[str, Any]]()
    with subprocess.Popen(
        machine.pinned(machine.load_core, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stderr is not None
        assert client.stdout is not None
        for line in client.stderr:
            word, _, ended = line.partition(" ")
            if word == "progress":
                rss.append({"requests": int(ended), "rss_bytes": rss_by_process(table, subject)})
                print(f"{int(ended):>10,} requests: {_megabytes(rss[-1]['rss_bytes'])}", file=sys.stderr, flush=True)
        text = client.stdout.read()
    if client.returncode != 0:
        raise BenchmarkError(f"the load client ended with status {client.returncode}")
    told = json.loads(text)
    result = SoakResult(
        sent=told["sent"],
        unexpected=told["failed"] + told["unfinished"],
        kinds=told["kinds"],
        first_failure=told["first_failure"],
        rss=rss,
        growth_bytes=growth(rss),
    )
    result.in_flight = _settled_gauges(subject)
    rows = _settled_rows(subject, None if rows_before is None else rows_before + result.sent)
    result.ledger_rows = None if rows is None or rows_before is None else rows - rows_before
    result.complaints = find_complaints(result)
    return result


def find_complaints(result: SoakResult) -> list[str]:
    """What breaks the promises of this module's first line."""
    complaints = [
        f"memory of {process} grew by {grown / 1048576:.1f} MiB, more than {GROWTH_BOUND_BYTES / 1048576:.0f}"
        for process, grown in result.growth_bytes.items()
        if grown >= GROWTH_BOUND_BYTES
    ]
    complaints += [f"{name} is {value:g}, not 0" for name, value in (result.in_flight or {}).items() if value]
    if result.ledger_rows is not None and result.ledger_rows != result.sent:
        complaints.append(f"the ledger has {result.ledger_rows:,} rows for {result.sent:,} requests")
    return complaints


def rss_by_process(table: ProcessTable, subject: Subject) -> dict[str, int]:
    """Resident bytes of each process of the tree, by pid and command."""
    return {
        f"{stat.pid} {_command(stat.pid)}": stat.rss_bytes
        for stat in table.members(root=subject.root_pid, mark=subject.mark)
    }


def growth(rss: Sequence[dict[str, Any]]) -> dict[str, int]:
    """By process: the last look minus the first; processes that lived through both."""
    if not rss:
        return {}
    first, last = rss[0]["rss_bytes"], rss[-1]["rss_bytes"]
    return {process: last[process] - first[process] for process in last if process in first}


def _command(pid: int) -> str:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return " ".join(Path(word.decode(errors="replace")).name for word in words[:4] if word)


def _megabytes(rss_bytes: dict[str, int]) -> str:
    return ", ".join(f"{process} {size / 1048576:.1f} MiB" for process, size in rss_bytes.items()) or "no process"


def read_gauges(text: str) -> dict[str, float]:
    """In-flight gauges in an exposition of metrics, by series."""
    return {series: float(value) for series, value in GAUGE.findall(text)}


def _settled_gauges(subject: Subject) -> dict[str, float] | None:
    if subject.control_url is None:
        return None

    def look() -> dict[str, float]:
        with urllib.request.urlopen(f"{subject.control_url}/metrics", timeout=10) as response:
            return read_gauges(response.read().decode())

    gauges = _poll(look, lambda seen: not any(seen.values()))
    if not gauges:
        raise BenchmarkError(f"{subject.control_url}/metrics shows no in-flight gauge of headrace")
    return gauges


def _settled_rows(subject: Subject, wanted: int | None) -> int | None:
    """Rows of the ledger, once they are `wanted` or have stopped coming."""
    if subject.ledger_url is None:
        return None
    engine = sqlalchemy.create_engine(subject.ledger_url)
    try:

        def count() -> int:
            with engine.connect() as connection:
                return connection.execute(sqlalchemy.text("SELECT count(*) FROM requests")).scalar_one()

        if wanted is not None:
            enough = wanted
            return _poll(count, lambda rows: rows >= enough)
        earlier = count()
        while True:  # the writer is behind by its flush interval
            time.sleep(3)
            now = count()
            if now == earlier:
                return now
            earlier = now
    finally:
        engine.dispose()


def _poll(look: Callable[[], Seen], is_settled: Callable[[Seen], bool]) -> Seen:
    deadline_mono_s = time.monotonic() + SETTLE_S
    while True:
        seen = look()
        if is_settled(seen) or time.monotonic() > deadline_mono_s:
            return seen
        time.sleep(0.5)
