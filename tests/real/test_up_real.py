"""`headrace up` with a real engine: started from the declaration, supervised, killed, brought back, ended."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.drill.instance import Instance
from tests.real.figures import FIGURES
from tests.real.serving import START_S, RealEngine, processes_of_session

pytestmark = pytest.mark.timeout(1200)


class RealInstance(Instance):
    """An instance whose pool is a real engine in an environment of its own."""

    def __init__(self, folder: Path, engine: RealEngine) -> None:
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
        self.declaration["pools"] = {"chat": pool}
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
        return [replica["phase"] for replica in self.status()["replicas"]] == ["ready"]

    def engine_processes(self) -> dict[int, str]:
        """The replica's processes and its warden, by their session: engines overwrite their own environment."""
        [pid] = self.engine_pids().values()
        self.sessions.add(os.getsid(pid))
        return processes_of_session(os.getsid(pid))

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


@pytest.fixture
def instance(real_engine: RealEngine, tmp_path: Path) -> Iterator[RealInstance]:
    """Not started yet; the suite's own engine is down meanwhile, since two need too much memory."""
    real_engine.end()
    instance = RealInstance(tmp_path, real_engine)
    yield instance
    instance.end()


def wait_until_ready(instance: RealInstance) -> None:
    deadline_mono_s = time.monotonic() + START_S
    while not instance.is_ready():
        assert time.monotonic() < deadline_mono_s, instance.status()
        time.sleep(0.5)


def test_a_declared_engine_is_started_supervised_and_ended(instance: RealInstance, real_engine: RealEngine) -> None:
    """up starts it and waits; it answers; logs show it; killed, it comes back; down leaves no process."""
    begun_mono_s = time.monotonic()
    instance.up()
    FIGURES.add("up_s", time.monotonic() - begun_mono_s)
    assert instance.is_ready()
    answer = instance.ask()
    assert answer.status_code == 200, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]
    logs = instance.run("logs", "--source", "engine-chat-0", "--lines", "400")
    assert logs.returncode == 0, logs.stderr
    assert real_engine.kind.value in logs.stdout.lower()

    cores = instance.cores(real_engine)
    assert cores, instance.engine_processes()
    for pid in cores:
        os.kill(pid, signal.SIGKILL)
    begun_mono_s = time.monotonic()
    wait_until_noticed(instance)
    wait_until_ready(instance)
    FIGURES.add("back_after_kill_s", time.monotonic() - begun_mono_s)
    assert instance.cores(real_engine)
    assert not cores & instance.left_over().keys()
    assert instance.ask().status_code == 200
    [replica] = instance.status()["replicas"]
    assert replica["restarts"] == 1

    down = instance.run("down")
    assert down.returncode == 0, down.stderr
    assert instance.left_over() == {}


def wait_until_noticed(instance: RealInstance) -> None:
    deadline_mono_s = time.monotonic() + START_S
    while instance.is_ready():
        assert time.monotonic() < deadline_mono_s, "a dead engine is still called ready"
        time.sleep(0.1)


def test_down_lets_a_stream_finish(instance: RealInstance, real_engine: RealEngine) -> None:
    """A stream that is open when the operator says `down` is whole: the engine's drain was set from stop_s."""
    instance.up()
    assert instance.cores(real_engine)
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 120,
        "ignore_eos": True,
        "stream": True,
    }
    url = f"http://127.0.0.1:{instance.port}/v1/chat/completions"
    headers = {"authorization": f"Bearer {instance.key}"}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if '"content"' in line)
        argv = [sys.executable, "-m", "headrace.cli.main", "down"]
        with subprocess.Popen(argv, env=instance.environment, cwd=instance.folder, stdout=subprocess.DEVNULL) as down:
            rest = [line for line in lines if line]
            assert down.wait(START_S) == 0
    assert first
    assert '"finish_reason":"length"' in rest[-2].replace(": ", ":")
    assert rest[-1] == "data: [DONE]"
    assert instance.left_over() == {}
