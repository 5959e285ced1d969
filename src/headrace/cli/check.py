"""`headrace check`: what is wrong with a declaration, and with the machine that is to run it. Starts nothing."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.handover_view import fit_lines
from headrace.cli.options import ConfigOption, JsonOption, SetOption, verb_app
from headrace.cli.output import EXIT_PROBLEMS, emit
from headrace.declaration.load import BUILTIN_NAME, find_declaration, load_declaration
from headrace.declaration.model import Declaration
from headrace.declaration.problem import DeclarationError, Problem, Severity
from headrace.domain.operator_error import WrongUsageError
from headrace.domain.routing_status import HandoverFit
from headrace.engines.declared import lint_engines
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.gather import script_for
from headrace.fleet.deploy.preflight.report import PoolReport, PreflightReport, check_machine
from headrace.fleet.deploy.running_pairs import running_pairs
from headrace.settings import load_settings

app = verb_app()

ElsewhereOption = Annotated[
    bool,
    typer.Option(
        "--elsewhere",
        help="Another machine will run it: secrets and files that are missing here are only warnings, and this "
        "machine is not checked.",
    ),
]
OfflineOption = Annotated[
    bool,
    typer.Option(
        "--offline", help="Ask nothing over the network: neither engines that run elsewhere nor the ledger's database."
    ),
]
CaptureOption = Annotated[
    Path | None,
    typer.Option(
        "--from-capture",
        metavar="DIR",
        help="Check the machine whose answers are in DIR (docs/preflight.md) instead of this one.",
    ),
]
ScriptOption = Annotated[
    bool,
    typer.Option(
        "--capture-script", help="Print the shell script that writes such a DIR, to run on the machine in question."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `headrace check --json` prints."""

    file: str | None
    """None: the built-in declaration."""
    is_valid: bool
    """The declaration can be used."""
    errors: int
    warnings: int
    problems: tuple[Problem, ...]
    """Of the declaration."""
    preflight: PreflightReport | None
    """Of the machine; None where the declaration cannot be used, a capture has nothing to judge, or --elsewhere was
    given."""
    handovers: tuple[HandoverFit, ...] = ()
    """Of prefill and decode engines that run elsewhere, as they say themselves; empty where none was asked."""


@app.command(epilog="Example: headrace check --config headrace.yaml --set pools.main.parallel.tensor=4")
def check(
    config: ConfigOption = None,
    overrides: SetOption = None,
    is_elsewhere: ElsewhereOption = False,
    is_offline: OfflineOption = False,
    capture: CaptureOption = None,
    wants_script: ScriptOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check a declaration and the machine that is to run it, without starting anything.

    Prints each problem of the declaration with its file, line and key. Then what the start needs: state folder,
    addresses, certificates, packages and the database. Then, for each pool that headrace would run: its program, GPUs,
    driver, memory against weights and KV cache, links, shared memory, limits, disk, files, ports, network and clock,
    each with what was seen, what is needed and what mends it. Engines that run elsewhere are asked for their models,
    3 s at most; prefill and decode engines also what they are, and those that do not fit are named. --offline asks none
    of them.
    Exits with 0 where nothing or only warnings were found, with 3 where the declaration cannot be used or a pool or
    the instance cannot run.
    """
    path = find_declaration(config, environ=os.environ)
    declaration: Declaration | None = None
    try:
        loaded = load_declaration(
            path,
            environ=os.environ,
            is_elsewhere=is_elsewhere or capture is not None,
            overrides=overrides or (),
            checks=lint_engines,
        )
        declaration, problems = loaded.declaration, loaded.warnings
    except WrongUsageError:
        raise
    except DeclarationError as error:
        problems = error.problems
    settings = load_settings()
    if wants_script and declaration is not None:
        print(script_for(declaration, settings), end="")
        return
    preflight: PreflightReport | None = None
    if declaration is not None and (capture is not None or not is_elsewhere):
        report = check_machine(declaration, settings, capture=capture, is_offline=is_offline)
        preflight = report if report.pools or report.instance else None
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    asks_engines = not is_elsewhere and not is_offline and capture is None
    told = CheckReport(
        file=None if path is None else str(path),
        is_valid=errors == 0,
        errors=errors,
        warnings=len(problems) - errors,
        problems=problems,
        preflight=preflight,
        handovers=running_pairs(declaration) if declaration is not None and asks_engines else (),
    )
    emit("check", told, as_json=as_json, human=lambda: _text(path, told))
    if errors or (preflight is not None and not preflight.is_passed):
        raise typer.Exit(EXIT_PROBLEMS)


def _text(path: Path | None, told: CheckReport) -> str:
    name = BUILTIN_NAME if path is None else str(path)
    if told.problems:
        counts = f"{_counted(told.errors, 'error')}, {_counted(told.warnings, 'warning')}"
        lines = [*map(str, told.problems), f"{name}: {counts}"]
    else:
        has_more = told.preflight is not None and told.preflight.has_doubts
        lines = [f"{name}: sound" if has_more else f"{name}: nothing to complain about"]
    if told.preflight is not None:
        lines += ["", told.preflight.machine]
        if told.preflight.instance:
            lines += ["", *_instance_lines(told.preflight.instance)]
        for pool in told.preflight.pools:
            lines += ["", *_pool_lines(pool)]
    if told.handovers:
        lines += ["", *fit_lines(told.handovers)]
    return "\n".join(lines)


def _instance_lines(findings: tuple[Finding, ...]) -> Iterator[str]:
    levels = Counter(finding.level for finding in findings)
    verdict = "cannot start" if levels[Level.FAIL] else "can start"
    yield f"instance {verdict}: {_counts(levels[Level.FAIL], levels[Level.WARN], levels[Level.OK])}"
    for finding in findings:
        yield from _finding_lines(finding)


def _counts(failed: int, doubtful: int, passed: int) -> str:
    return f"{failed} failed, {_counted(doubtful, 'warning')}, {passed} ok"


def _pool_lines(pool: PoolReport) -> Iterator[str]:
    failed, doubtful = pool.count(Level.FAIL), pool.count(Level.WARN)
    is_judged = all(finding.level is not Level.WARN for finding in pool.findings if finding.code == "gpu")
    verdict = "cannot run as declared" if failed else "can run" if is_judged else "is not judged without its GPUs"
    counts = _counts(failed, doubtful, pool.count(Level.OK))
    yield f"pool {pool.pool} ({pool.engine}, {pool.model}) {verdict}: {counts}"
    for finding in pool.findings:
        yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {finding.level.value:<4}  {finding.code}: {finding.seen}"
    if finding.needed:
        yield f"        needed: {finding.needed}"
    if finding.remedy:
        yield f"        {finding.remedy}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
