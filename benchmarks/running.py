"""One started program: its processes, port and credentials; and how it is stopped with everything it started."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.problem import BenchmarkError
from benchmarks.process_tree import ProcessTable, Usage

START_S = 60.0
STOP_S = 10.0
RECORDED_REQUESTS = 200
RECORDED_AFTER_S = 1.5
"""Longer than any of the targets holds its log lines back."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True, kw_only=True)
class Running:
    """A program under test, or the mock engine. `process` is None where there is nothing between client and engine."""

    name: str
    port: int
    key: str
    model: str
    process: subprocess.Popen[bytes] | None
    mark: str
    log: Path | None
    control_port: int | None = None
    table: ProcessTable = field(default_factory=ProcessTable)

    def usage(self) -> Usage:
        if self.process is None:
            return Usage(cpu_s=0.0, rss_bytes=0, processes=0)
        return self.table.usage(root=self.process.pid, mark=self.mark)

    def stop(self) -> None:
        """Ask the program to end, then end what is left of its session."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(STOP_S)
        for stat in self.table.members(root=None, mark=self.mark):
            try:
                os.kill(stat.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def require_alive(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            raise BenchmarkError(f"{self.name} ended with status {self.process.returncode}: {self.log_tail()}")

    def log_tail(self) -> str:
        if self.log is None or not self.log.exists():
            return "it logged nothing"
        return self.log.read_text(errors="replace").strip()[-600:] or "it logged nothing"


@contextmanager
def stopping_on_failure(running: Running) -> Generator[None]:
    """Leave nothing running when the rest of its start fails."""
    try:
        yield
    except BaseException:
        running.stop()
        raise


def start_program(
    name: str,
    command: list[str],
    *,
    folder: Path,
    port: int,
    key: str,
    model: str,
    environment: dict[str, str] | None = None,
) -> Running:
    """Start `command` in its own session, with a mark of its own in the environment and its output in a log file."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    mark = f"HEADRACE_BENCH_TARGET={name}-{uuid.uuid4().hex}"
    variable, _, value = mark.partition("=")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **(environment or {}), variable: value},
            start_new_session=True,
        )
    return Running(name=name, port=port, key=key, model=model, process=process, mark=mark, log=log)


def wait_until_answering(running: Running, *, start_s: float = START_S) -> None:
    """Return when a whole answer comes back with status 200."""
    deadline_mono_s = time.monotonic() + start_s
    last = "no connection"
    while time.monotonic() < deadline_mono_s:
        running.require_alive()
        try:
            status, text = ask_once(running.port, running.key, running.model)
        except (OSError, http.client.HTTPException) as error:
            last = str(error)
        else:
            if status == 200:
                return
            last = f"status {status}: {text[:200]}"
        time.sleep(0.1)
    raise BenchmarkError(f"{running.name} gave no answer within {start_s:.0f} s ({last}): {running.log_tail()}")


def checks_keys(running: Running) -> bool:
    """Whether a wrong key is refused, with whatever status."""
    return ask_once(running.port, "hr-wrong-key", running.model)[0] != 200


def written_bytes(running: Running) -> int | None:
    """Bytes that the program has in its folder: logs, journal, database. None where there is no program."""
    if running.log is None:
        return None
    return sum(path.stat().st_size for path in running.log.parent.rglob("*") if path.is_file())


def written_bytes_per_request(running: Running) -> float | None:
    """What one request leaves in the program's files, once its buffers are out: its request log, if it has one."""
    before = written_bytes(running)
    if before is None:
        return None
    for _ in range(RECORDED_REQUESTS):
        ask_once(running.port, running.key, running.model)
    time.sleep(RECORDED_AFTER_S)
    return ((written_bytes(running) or 0) - before) / RECORDED_REQUESTS


def ask_once(port: int, key: str, model: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()
