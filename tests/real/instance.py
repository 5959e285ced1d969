"""A whole headrace instance whose pools are real engines in environments of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.drill.instance import Instance
from tests.real.serving import START_S, RealEngine, processes_of_session


class RealInstance(Instance):
    """Of one engine, which a test of the suite has down meanwhile. `pools`: more keys of each pool."""

    def __init__(self, folder: Path, engine: RealEngine, pools: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        super().__init__(folder)
        self.sessions: set[int] = set()
        self.declaration["models"] = {
            "tiny": {"source": f"file:{engine.model}", "context_tokens": engine.context_tokens}
        }
        pool: dict[str, Any] = {
            "model": "tiny",
            "engine": engine.kind.value,
            "replicas": 1,
            "stop_s": 30,
            **engine.recipe.pool(engine.python),
        }
        self.declaration["pools"] = {name: {**pool, **keys} for name, keys in (pools or {"chat": {}}).items()}
        self.write()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "headrace.cli.main", *words]
        return subprocess.run(
            argv, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=START_S
        )

    def ask(self, **fields: Any) -> httpx.Response:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}], **fields}
        headers = {"authorization": f"Bearer {self.key}"}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        return httpx.post(url, json={"temperature": 0, "max_tokens": 12, **body}, headers=headers, timeout=120)

    def is_ready(self) -> bool:
        return {replica["phase"] for replica in self.status()["replicas"]} == {"ready"}

    def engine_processes(self) -> dict[int, str]:
        """The replicas' processes and their wardens, by their sessions: engines overwrite their own environment."""
        found: dict[int, str] = {}
        for endpoint in self.engine_pids():
            found |= self.processes_of(endpoint)
        return found

    def processes_of(self, endpoint: str) -> dict[int, str]:
        session = os.getsid(self.engine_pids()[endpoint])
        self.sessions.add(session)
        return processes_of_session(session)

    def cores(self, engine: RealEngine) -> set[int]:
        """Those that compute, by the name that the engine gives them."""
        return {pid for pid, line in self.engine_processes().items() if engine.recipe.core_name in line}

    def left_over(self) -> dict[int, str]:
        """Whatever lives of this instance, or of an engine that it had."""
        found = self.processes()
        for session in self.sessions:
            found |= processes_of_session(session)
        return found

    def end(self) -> None:
        for pid in self.left_over():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_until_ready(self) -> None:
        deadline_mono_s = time.monotonic() + START_S
        while not self.is_ready():
            assert time.monotonic() < deadline_mono_s, self.status()
            time.sleep(0.5)

    def metric(self, name: str, label: str = "") -> float:
        """Sum of the gateway's samples of this name with this label; 0 where there are none."""
        lines = httpx.get(f"http://127.0.0.1:{self.control_port}/metrics", timeout=30).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{") and label in line)
