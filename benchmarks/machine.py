"""The machine under the benchmark: which cores are used for what, and how busy others keep it."""

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.interpreter import Interpreter, read_interpreter
from benchmarks.process_tree import TICKS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts stated with every result."""

    processor: str
    cores: int
    memory_gib: int
    kernel: str
    python: str
    """Version of the Python that headrace runs on."""
    python_build: str
    proxy_core: int | None
    """Core of the program under test; None: not pinned."""
    load_core: int | None
    """Core of the mock engine and the load client."""

    def pinned(self, core: int | None, command: list[str]) -> list[str]:
        return command if core is None else ["taskset", "-c", str(core), *command]


def read_machine(python: Interpreter | None = None) -> Machine:
    """`python`: the one that headrace runs on, where it is not the one of this."""
    python = python or read_interpreter(Path(sys.executable))
    cores = sorted(os.sched_getaffinity(0))
    can_pin = len(cores) > 1 and shutil.which("taskset") is not None
    name = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return Machine(
        processor=name[1] if name else platform.machine(),
        cores=len(cores),
        memory_gib=round(int(memory[1]) / 1048576) if memory else 0,
        kernel=platform.release(),
        python=python.version,
        python_build=python.build,
        proxy_core=cores[0] if can_pin else None,
        load_core=cores[1] if can_pin else None,
    )


def busy_cpu_s() -> float:
    """CPU seconds spent on anything but idling since the start of the machine, time stolen by its host included."""
    return parse_busy_cpu_s(Path("/proc/stat").read_text())


def parse_busy_cpu_s(text: str) -> float:
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in text.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
