"""vLLM and SGLang under the supervisor: started, drained, adopted and ended like llama.cpp; played by stand-ins."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until

from headrace.fleet.deploy.ports import choose_port

STANDIN = Path(__file__).parent / "standins" / "worker_engine.py"


BOTH = pytest.mark.parametrize("instance", ["vllm", "sglang"], indirect=True)
"""Where the two differ; what the supervisor does for any engine is shown with one."""


@pytest.fixture
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instance]:
    """An instance with one pool of the engine, whose environment's Python is a stand-in; not started yet."""
    engine = getattr(request, "param", "vllm")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nshift 2\n[ "$1" = serve ] && shift\nexec "{sys.executable}" "{STANDIN}" {engine} "$@"\n'
    )
    python.chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    made = Instance(tmp_path, STANDIN_NOTES=str(tmp_path))
    made.declaration["models"]["tiny"] = {"source": "file:model", "context_tokens": 512}
    made.declaration["pools"]["chat"] = {
        "model": "tiny",
        "engine": engine,
        "stop_s": 5,
        "runtime": {"python": "python", "device": "cpu"},
    }
    made.write()
    yield made
    made.end()


def argv_of(instance: Instance) -> list[str]:
    """The command line that the stand-in was started with."""
    return json.loads((instance.folder / "argv.json").read_text())


@BOTH
def test_it_is_started_from_its_environment_and_leaves_nothing(instance: Instance) -> None:
    """`up` starts the declared environment's engine with the flags it has, and `down` ends its workers too."""
    port = choose_port("127.0.0.1", (), seed=str(instance.folder))
    instance.declaration["pools"]["chat"]["port"] = port
    instance.write()
    done = instance.run("up", "--detach", "--json", "--set", "pools.chat.batching.max_sequences=3")
    assert done.returncode == 0, done.stderr
    instance.key = json.loads(done.stdout)["data"]["api_key"]
    assert instance.call() == 200
    assert instance.status()["replicas"][0]["url"] == f"http://127.0.0.1:{port}"
    words = argv_of(instance)
    assert "3" in words
    assert str(instance.folder / "model") in words
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert "512" in words

    assert instance.run("down").returncode == 0

    wait_until(lambda: instance.processes() == {}, "the end of all its processes")


@BOTH
def test_a_drain_loses_no_request(instance: Instance) -> None:
    """A restart takes it out of rotation first; only the engine hears SIGTERM, whose workers would cut what runs."""
    instance.up()
    statuses: list[int] = []
    caller = threading.Thread(target=lambda: statuses.append(instance.call(sleep_s=1.5)))
    caller.start()
    wait_until((instance.folder / "request-arrived").exists, "the request at the engine")

    done = instance.run("down")

    caller.join()
    assert done.returncode == 0
    assert statuses == [200]
    assert not (instance.folder / "worker-heard").exists()
    wait_until(lambda: instance.processes() == {}, "the end of all its processes")


def test_it_is_adopted_by_the_next_supervisor(instance: Instance) -> None:
    """`on_supervisor_loss: keep`: a new supervisor finds the very same engine by the very same command."""
    instance.declaration["on_supervisor_loss"] = "keep"
    instance.write()
    instance.up()
    engines = instance.engine_pids()

    os.kill(instance.supervisor_pid(), signal.SIGKILL)
    assert instance.call() == 200
    instance.up()

    assert instance.engine_pids() == engines
    assert instance.status()["replicas"][0]["restarts"] == 0
    assert instance.run("down").returncode == 0


def test_an_engine_that_outlives_its_core_is_ended(instance: Instance) -> None:
    """Its process lives, but /health says that it is dead: it and its worker are ended, and a fresh one serves."""
    instance.up()
    first = instance.engine_pids()["chat/0"]

    (instance.folder / "core-dead").touch()

    wait_until(lambda: instance.engine_pids().get("chat/0") not in (None, first), "a fresh engine")
    wait_until(lambda: instance.call() == 200, "an answer by it")
    workers = [words for words in instance.processes().values() if "worker_engine.py worker" in words]
    assert len(workers) == 1


def test_a_load_that_takes_too_long_is_ended(instance: Instance) -> None:
    """An engine that is not ready in time is ended with its workers, and the reason says which bound it was."""
    instance.environment["STANDIN_LOAD_S"] = "60"
    instance.declaration["pools"]["chat"]["load_timeout_s"] = 1
    instance.write()
    assert "supervisor" not in instance.run("up", "--detach", "--timeout-s", "1").stderr

    wait_until(lambda: "load_timeout_s" in str(instance.status()["replicas"]), "the reason")


def test_on_a_gpu_the_old_engine_ends_before_the_new_one_starts(instance: Instance) -> None:
    """Two engines do not fit on one GPU: a changed option ends the old one first, after what it answers."""
    port = choose_port("127.0.0.1", (), seed=str(instance.folder))
    instance.declaration["pools"]["chat"]["port"] = port
    instance.declaration["pools"]["chat"]["runtime"]["device"] = "gpu"
    instance.write()
    instance.up()
    instance.declaration["pools"]["chat"]["batching"] = {"max_sequences": 3}
    instance.write()

    assert instance.run("reload").returncode == 0

    wait_until(lambda: list(instance.engine_pids()) == ["chat/1"], "the replacement")
    wait_until(lambda: instance.call() == 200, "an answer by it")
    log = (instance.state_dir / "logs" / "supervisor.log").read_text()
    assert "the old replicas end before the new ones start" in log
    assert instance.status()["replicas"][0]["url"].endswith(f":{port}"), "the declared port again"
