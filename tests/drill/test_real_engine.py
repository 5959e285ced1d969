"""The supervisor with the real embedded engine and the bundled model: killed and upgraded while it answers."""

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
    made.declaration["pools"] = {"chat": {"model": BUILTIN_MODEL, "threads": 1, "slots": 2, "stop_s": 5}}
    made.write()
    yield made
    made.end()


def ask(instance: Instance) -> str:
    done = instance.run("chat", "--json", "--key", instance.key, "--max-tokens", "12", "What is the capital of France?")
    return json.loads(done.stdout)["data"]["content"] if done.returncode == 0 else ""


def test_the_real_engine_survives_an_upgrade_and_returns_after_a_kill(instance: Instance) -> None:
    """The bundled model answers, goes on through an upgrade in the same process, and comes back after kill -9."""
    instance.up()
    assert "Paris" in ask(instance)
    engines = instance.engine_pids()

    assert instance.run("reload", "--upgrade").returncode == 0
    assert instance.engine_pids() == engines
    assert "Paris" in ask(instance)

    os.kill(engines["chat/0"], signal.SIGKILL)
    wait_until(lambda: "Paris" in ask(instance), "an answer by a fresh engine")
    assert instance.status()["replicas"][0]["restarts"] == 1

    assert instance.run("down").returncode == 0
    assert instance.processes() == {}
