"""The supervisor with the real embedded engine and the bundled model: killed and upgraded while it answers."""

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until

from headrace.declaration.builtin import BUILTIN_MODEL, builtin_declaration
from headrace.settings import load_settings

pytestmark = pytest.mark.engine


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance of the built-in model on ports of its own, one thread, not started yet."""
    made = Instance(tmp_path)
    made.environment["PATH"] = os.environ["PATH"]  # The real engine, not the stand-in.
    made.environment["HEADRACE_CACHE_DIR"] = str(load_settings().cache_dir)
    model = builtin_declaration().models[BUILTIN_MODEL]
    made.declaration["models"] = {BUILTIN_MODEL: model.model_dump(exclude_defaults=True)}
    made.declaration["pools"] = {
        "chat": {"model": BUILTIN_MODEL, "threads": 1, "batching": {"max_sequences": 2}, "stop_s": 5}
    }
    made.write()
    yield made
    made.end()


def stream(instance: Instance) -> int | str:
    """Ask for a stream; 200 where it ends well, otherwise the code that the caller is shown."""
    status, body = instance.ask(stream=True, max_tokens=40, ignore_eos=True)
    if body.endswith(b"data: [DONE]\n\n"):
        return status
    return str(json.loads(body.removesuffix(b"\n\n").rpartition(b"data: ")[2])["error"]["code"])


def ask(instance: Instance) -> str:
    """Return what the model says, "" where the verb fails. It is sampled, and small: what it says is not looked at."""
    done = instance.run("chat", "--json", "--key", instance.key, "--max-tokens", "12", "What is the capital of France?")
    return json.loads(done.stdout)["data"]["content"] if done.returncode == 0 else ""


def test_the_real_engine_killed_under_load_returns_unaided(instance: Instance) -> None:
    """kill -9 of llama.cpp under streams and whole answers: each caller gets a clear end, none hangs, and it heals."""
    turns = itertools.count()

    def call() -> int | str:
        return stream(instance) if next(turns) % 2 else instance.call(max_tokens=20, ignore_eos=True)

    instance.up()
    pid = instance.engine_pids()["chat/0"]

    with instance.under_load(3, call=call) as results:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: instance.engine_pids().get("chat/0") not in (None, pid), "a fresh engine")
        count = len(results)
        wait_until(lambda: 200 in results[count:], "answers by it")

    refusals = {502, 503, "stream_broken", "no_ready_endpoint", "connect_failed"}
    assert set(results) <= {200, *refusals}
    assert set(results) & refusals, "somebody was hit"
    assert {call(), call()} == {200}


def test_the_real_engine_survives_an_upgrade_and_returns_after_a_kill(instance: Instance) -> None:
    """The bundled model answers, goes on through an upgrade in the same process, and comes back after kill -9."""
    instance.up()
    assert ask(instance)
    engines = instance.engine_pids()

    assert instance.run("reload", "--upgrade").returncode == 0
    assert instance.engine_pids() == engines
    assert ask(instance)

    os.kill(engines["chat/0"], signal.SIGKILL)
    wait_until(lambda: ask(instance) != "", "an answer by a fresh engine")
    assert instance.status()["replicas"][0]["restarts"] == 1

    assert instance.run("down").returncode == 0
    assert instance.processes() == {}
