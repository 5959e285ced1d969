"""A whole headrace instance for drills: real supervisor, gateway and wardens; the engine is a small stand-in process.

The stand-in is found as `llama-server` on PATH, so everything but the model itself is what operators run.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.harness.polling import wait_until
from tests.harness.ports import free_port

ENGINE = Path(__file__).parent / "standins" / "engine.py"
DEADLINE_S = 60.0
"""Only a broken program, never a slow machine, is still waiting then."""


class Instance:
    """One instance in a folder of its own, driven by the command line."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.state_dir = folder / "s"
        self.config = folder / "headrace.yaml"
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "llama-server"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ENGINE}" "$@"\n')
        program.chmod(0o755)
        (folder / "model.gguf").write_bytes(b"not a real model")
        self.environment = {
            **os.environ,
            "HEADRACE_STATE_DIR": str(self.state_dir),
            "HEADRACE_CACHE_DIR": str(folder / "cache"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            **environment,
        }
        self.port, self.control_port = free_port(), free_port()
        self.declaration: dict[str, Any] = {
            "version": 1,
            "gateway": {
                "listen": f"127.0.0.1:{self.port}",
                "control": f"127.0.0.1:{self.control_port}",
                "drain_s": 10,
            },
            "models": {"tiny": {"source": "file:model.gguf"}},
            "pools": {"chat": {"model": "tiny", "replicas": 1, "stop_s": 5, "threads": 1}},
        }
        self.key = ""
        self.begun: list[subprocess.Popen[str]] = []
        """Commands started, closed at the end even where a test fails."""
        self.write()

    def write(self) -> None:
        self.config.write_text(yaml.safe_dump(self.declaration))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `headrace WORDS` to its end."""
        process = self.begin(*words)
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start `headrace WORDS`."""
        argv = [sys.executable, "-m", "headrace.cli.main", *words]
        process = subprocess.Popen(
            argv, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.begun.append(process)
        return process

    def up(self) -> dict[str, Any]:
        """Start in the background and return what `up --json` says."""
        done = self.run("up", "--detach", "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        welcome = json.loads(done.stdout)["data"]
        self.key = welcome["api_key"] or self.key
        return welcome

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["data"]

    def supervisor_pid(self) -> int:
        return int(json.loads((self.state_dir / "run" / "supervisor.json").read_text())["process"]["pid"])

    def engine_pids(self) -> dict[str, int]:
        return {replica["endpoint"]: replica["pid"] for replica in self.status()["replicas"]}

    def call(self, sleep_s: float = 0.0, **fields: Any) -> int:
        """Send one request over a connection of its own; the answer is its status."""
        status, _ = self.ask(metadata={"sleep_s": str(sleep_s)}, **fields)
        return status

    def ask(self, **fields: Any) -> tuple[int, bytes]:
        """Send one chat request over a connection of its own; the answer is its status and body.

        Raises: OSError and http.client.HTTPException where the answer does not come whole.
        """
        [model] = self.declaration["models"]
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def processes(self) -> dict[int, str]:
        """Every living process of this instance, by the state folder in its environment."""
        mark = f"HEADRACE_STATE_DIR={self.state_dir}".encode()
        found: dict[int, str] = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Whatever a failed test has left."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.begun:
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    @contextlib.contextmanager
    def under_load(self, callers: int = 4, *, call: Callable[[], int | str] | None = None) -> Iterator[list[int | str]]:
        """Send requests without a pause; yields the list of what became of them, which grows."""
        send = call or (lambda: self.call(sleep_s=0.05))
        results: list[int | str] = []
        is_over = threading.Event()

        def keep_calling() -> None:
            while not is_over.is_set():
                try:
                    results.append(send())
                except OSError as error:
                    results.append(repr(error))
                except http.client.HTTPException as error:
                    results.append(repr(error))

        threads = [threading.Thread(target=keep_calling) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(results) > callers, "the first answers under load")
            yield results
            before = len(results)
            wait_until(lambda: len(results) > before + callers, "answers after the change")
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
