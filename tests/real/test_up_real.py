"""`headrace up` with a real engine: started from the declaration, supervised, killed, brought back, ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.real.figures import FIGURES
from tests.real.instance import RealInstance
from tests.real.serving import START_S, RealEngine

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def instance(real_engine: RealEngine, tmp_path: Path) -> Iterator[RealInstance]:
    """Not started yet; the suite's own engine is down meanwhile, since two need too much memory."""
    real_engine.end()
    instance = RealInstance(tmp_path, real_engine)
    yield instance
    instance.end()


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
    instance.wait_until_ready()
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
