"""The preflight as a whole: every pool of a declaration against one machine, and what the instance itself needs."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.engine_process import find_adoptable
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.core.judge import judge_pool
from headrace.fleet.deploy.preflight.core.machine import Machine
from headrace.fleet.deploy.preflight.endpoint_checks import check_endpoints
from headrace.fleet.deploy.preflight.gather import CaptureFolder, ask_machine, look_at_model, plan_pools
from headrace.fleet.deploy.preflight.instance_checks import check_instance
from headrace.fleet.deploy.preflight.program_check import check_program
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
    """All pools that headrace would run, and the instance around them."""

    machine: str
    """One line on what was looked at."""
    pools: tuple[PoolReport, ...]
    instance: tuple[Finding, ...] = ()
    """Addresses, certificates, packages, database, and engines that run elsewhere; empty for a capture."""

    @property
    def is_passed(self) -> bool:
        has_failed = any(finding.level is Level.FAIL for finding in self.instance)
        return not has_failed and not any(pool.count(Level.FAIL) for pool in self.pools)

    @property
    def has_doubts(self) -> bool:
        """Whether anything failed or was warned of."""
        findings = [*self.instance, *(finding for pool in self.pools for finding in pool.findings)]
        return any(finding.level is not Level.OK for finding in findings)


def check_machine(
    declaration: Declaration, settings: Settings, *, capture: Path | None = None, is_offline: bool = False
) -> PreflightReport:
    """Judge this machine, or the one that `capture` was taken from.

    `is_offline`: neither engines that run elsewhere nor the database are asked.

    Raises: OperatorError where `capture` is no folder.
    """
    instance: list[Finding] = []
    programs: dict[str, tuple[Finding, ...]] = {}
    if capture is not None:
        folder = CaptureFolder(capture)
        machine, plans = folder.machine(), plan_pools(declaration, settings, folder.facts_of)
    else:
        plans = plan_pools(declaration, settings, look_at_model)
        pythons = {plan.pool.options.runtime.python for plan in plans if plan.pool.options.runtime.device == "gpu"}
        machine = ask_machine(settings, frozenset(python for python in pythons if python and python != sys.executable))
        machine = _without_our_own(machine, settings)
        programs = {plan.name: tuple(check_program(declaration, settings, plan.name)) for plan in plans}
        instance += check_instance(declaration, settings, is_offline=is_offline)
        instance += () if is_offline else check_endpoints(declaration)
    where = "this machine" if capture is None else f"the machine captured in {capture}"
    gpus = f"{len(machine.gpus)} x {machine.gpus[0].name}" if machine.gpus else "no GPU"
    return PreflightReport(
        machine=f"{where}: {gpus}",
        pools=tuple(
            PoolReport(
                pool=plan.name,
                engine=plan.pool.engine.value,
                model=plan.pool.model,
                findings=(*programs.get(plan.name, ()), *judge_pool(plan, machine)),
            )
            for plan in plans
        ),
        instance=tuple(instance),
    )


def _without_our_own(machine: Machine, settings: Settings) -> Machine:
    """What our own engines listen on is not taken from them."""
    if machine.ports is None:
        return machine
    states = map(find_adoptable, settings.run_dir.glob("engine-*.json"))
    return replace(machine, ports=machine.ports - {state.port for state in states if state is not None})
