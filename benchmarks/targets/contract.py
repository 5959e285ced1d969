"""What the harness needs of a target."""

from pathlib import Path
from typing import Protocol

from benchmarks.machine import Machine
from benchmarks.running import Running

KEY = "sk-bench-3f9c2a7d51e84b06"
"""The key callers show, for targets to which one can be given. It guards nothing but a mock."""


class Target(Protocol):
    """One program between the load client and the mock engine, or none."""

    kind: str
    title: str
    set_up: str
    """How it is set up, in a line for the report: what it checks and records."""
    is_rust_peer: bool
    is_slow: bool
    """Cannot carry the full load on one core: gets smaller scenarios."""

    def prepare(self) -> str:
        """Install what is needed; return the version.

        Raises: BenchmarkError, with the reason, where it cannot be had on this machine.
        """
        ...

    def start(self, backend_ports: list[int], machine: Machine, folder: Path) -> Running:
        """Start it in front of the mock engines; it answers when this returns."""
        ...
