"""`headrace engine list`: the engines that headrace has drivers for, and which of them are here."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from headrace.cli.engine_view import rows_view
from headrace.cli.options import JsonOption
from headrace.cli.output import emit
from headrace.domain.endpoint import EngineKind
from headrace.engines.registry import DRIVERS, driver_for
from headrace.engines.verification.commands import distributions_of, program_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine."""

    engine: EngineKind
    read_version: str | None
    """The version whose facts headrace has; None: nothing is known of it."""
    is_launched: bool
    """Whether headrace starts it; otherwise pools name `endpoints`."""
    program: str | None
    """Its program on PATH."""
    package: str | None
    """Name and version of its package in headrace's own environment."""
    metrics_path: str | None
    flags: int
    """How many flags headrace can pass."""
    purposes: int
    """For how many purposes it has a metric."""


def list_engines(as_json: JsonOption = False) -> None:
    """List the engines: the version whose facts were read, how each runs, and whether it is found on this machine.

    Engines usually live in an environment of their own, which a pool names: what is not found here may still run.
    """
    rows = [_row(kind) for kind in DRIVERS]
    columns = ("engine", "facts of", "runs", "here", "flags", "metrics")
    cells = [
        (
            row.engine.value,
            row.read_version,
            "started or attached" if row.is_launched else "attached",
            row.program or row.package,
            row.flags or None,
            f"{row.purposes} at {row.metrics_path}" if row.metrics_path else None,
        )
        for row in rows
    ]
    emit("engine-list", rows, as_json=as_json, human=lambda: rows_view((), columns, cells))


def _row(kind: EngineKind) -> EngineRow:
    driver = driver_for(kind)
    table = driver.metrics
    return EngineRow(
        engine=kind,
        read_version=None if table is None else table.version,
        is_launched=bool(driver.emitted_flags),
        program=program_of(kind),
        package=_package_of(kind),
        metrics_path=None if table is None else table.path,
        flags=len(driver.emitted_flags),
        purposes=0 if table is None else len({metric.purpose for metric in table.metrics}),
    )


def _package_of(kind: EngineKind) -> str | None:
    for name in distributions_of(kind):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None
