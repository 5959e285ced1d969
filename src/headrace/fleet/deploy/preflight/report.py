"""The preflight as a whole: every pool of a declaration against one machine."""

import sys
from dataclasses import dataclass
from pathlib import Path

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.core.judge import judge_pool
from headrace.fleet.deploy.preflight.gather import CaptureFolder, ask_machine, look_at_model, plan_pools
from headrace.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The findings of one pool."""

    pool: str
    engine: str
    model: str
    findings: tuple[Finding, ...]

    def count(self, level: Level) -> int:
        return sum(finding.level is level for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """All pools that headrace would run."""

    machine: str
    """One line on what was looked at."""
    pools: tuple[PoolReport, ...]

    @property
    def is_passed(self) -> bool:
        return not any(pool.count(Level.FAIL) for pool in self.pools)


def check_machine(declaration: Declaration, settings: Settings, *, capture: Path | None = None) -> PreflightReport:
    """Judge this machine, or the one that `capture` was taken from.

    Raises: OperatorError where `capture` is no folder.
    """
    if capture is not None:
        folder = CaptureFolder(capture)
        machine, plans = folder.machine(), plan_pools(declaration, settings, folder.facts_of)
    else:
        plans = plan_pools(declaration, settings, look_at_model)
        pythons = {plan.pool.options.runtime.python for plan in plans if plan.pool.options.runtime.device == "gpu"}
        machine = ask_machine(settings, frozenset(python for python in pythons if python and python != sys.executable))
    where = "this machine" if capture is None else f"the machine captured in {capture}"
    gpus = f"{len(machine.gpus)} x {machine.gpus[0].name}" if machine.gpus else "no GPU"
    return PreflightReport(
        machine=f"{where}: {gpus}",
        pools=tuple(
            PoolReport(
                pool=plan.name,
                engine=plan.pool.engine.value,
                model=plan.pool.model,
                findings=judge_pool(plan, machine),
            )
            for plan in plans
        ),
    )
