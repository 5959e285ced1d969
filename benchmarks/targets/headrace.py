"""headrace as `headrace up` runs it, everything on: keys, limits, metrics, journal, ledger, request log."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.interpreter import make_environment
from benchmarks.machine import Machine
from benchmarks.problem import BenchmarkError
from benchmarks.running import START_S, Running, free_port, start_program, stopping_on_failure, wait_until_answering

DECLARATION = """\
version: 1
gateway:
  listen: 127.0.0.1:{port}
  control: 127.0.0.1:{control_port}
models:
  mock: {{}}
pools:
  mock:
    model: mock
    engine: vllm
    endpoints: [{endpoints}]
tenants:
  bench:
    limits:
      requests_per_min: 100000000
      concurrent_requests: 100000
observability:
  request_log: true
"""


class HeadraceTarget:
    kind = "headrace"
    title = "headrace"
    set_up = "key checked, tenant limits, least loaded, retries, ejection, metrics, request log, journal and ledger"
    is_rust_peer = False
    is_slow = False

    def __init__(self, python: Path | None = None, *, is_compiled: bool = False) -> None:
        """`python`: run it on this one, in an environment of its own; None: on the Python that runs this.

        `is_compiled`: with its hot path compiled, in an environment of its own as well.
        """
        self._python = Path(sys.executable) if python is None and is_compiled else python
        self._is_compiled = is_compiled

    def prepare(self) -> str:
        programs = (
            Path(sys.executable).parent
            if self._python is None
            else make_environment(self._python, is_compiled=self._is_compiled)
        )
        self.program = programs / "headrace"
        if not self.program.exists():
            raise BenchmarkError("headrace is not installed beside this Python: run through `make bench`")
        told = subprocess.run([str(self.program), "--version"], capture_output=True, text=True)
        if told.returncode != 0:
            raise BenchmarkError(f"headrace --version failed: {told.stderr.strip()[-300:]}")
        return told.stdout.split()[-1] + (", hot path compiled" if self._is_compiled else "")

    def start(self, backend_ports: list[int], machine: Machine, folder: Path) -> Running:
        folder.mkdir(parents=True, exist_ok=True)
        port, control_port = free_port(), free_port()
        declaration = folder / "headrace.yaml"
        endpoints = ", ".join(f'"http://127.0.0.1:{backend}"' for backend in backend_ports)
        declaration.write_text(DECLARATION.format(port=port, control_port=control_port, endpoints=endpoints))
        environment = {"HEADRACE_STATE_DIR": str(folder / "state"), "HEADRACE_CACHE_DIR": str(folder / "cache")}
        command = [str(self.program), "up", "--config", str(declaration)]
        running = start_program(
            self.kind,
            machine.pinned(machine.proxy_core, command),
            folder=folder,
            port=port,
            key="none",
            model="mock",
            environment=environment,
        )
        running.control_port = control_port
        with stopping_on_failure(running):
            running.key = self._make_key(running, declaration, environment)
            wait_until_answering(running)
        return running

    def _make_key(self, running: Running, declaration: Path, environment: dict[str, str]) -> str:
        """Ask for a key until the database is there to hold one."""
        command = [str(self.program), "keys", "create", "--tenant", "bench", "--json", "--config", str(declaration)]
        deadline_mono_s = time.monotonic() + START_S
        while True:
            running.require_alive()
            told = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
            if told.returncode == 0:
                return find_key(told.stdout)
            if time.monotonic() > deadline_mono_s:
                raise BenchmarkError(f"headrace keys create failed: {told.stderr.strip()[-300:]}; {running.log_tail()}")
            time.sleep(0.2)


def find_key(text: str) -> str:
    """The key in the answer of `headrace keys create --json`."""
    try:
        return str(json.loads(text)["data"]["key"])
    except (ValueError, KeyError, TypeError) as error:
        raise BenchmarkError("headrace keys create --json printed no data.key") from error
