"""The supervisor under fire: real processes of a whole instance, killed, reloaded, upgraded, stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance that is not started yet."""
    made = Instance(tmp_path)
    yield made
    made.end()


def test_up_serves_and_down_leaves_nothing(instance: Instance) -> None:
    """`up` returns when requests are answered; `up` again says the same; `down` leaves no process behind."""
    welcome = instance.up()
    assert welcome["is_ready"]
    assert instance.call() == 200

    again = instance.up()
    assert again["inference_url"] == welcome["inference_url"]
    assert again["api_key"] is None, "a declared instance shows its key once"

    assert len(instance.processes()) >= 4, "supervisor, gateway, ledger, warden and engine"
    assert instance.run("down").returncode == 0
    assert instance.processes() == {}
    assert instance.run("status").returncode == 1


def test_the_engine_comes_back_unaided(instance: Instance) -> None:
    """kill -9 of the only engine: callers get an answer, and a fresh engine serves without anybody's help."""
    instance.up()
    [before] = instance.status()["replicas"]
    first = before["pid"]

    os.kill(first, signal.SIGKILL)

    wait_until(lambda: instance.engine_pids().get("chat/0") not in (None, first), "a fresh engine")
    wait_until(lambda: instance.call() == 200, "an answer by it")
    [replica] = instance.status()["replicas"]
    assert replica["restarts"] == 1
    assert replica["url"] == before["url"], "the port stays the same"


def test_a_gateway_worker_comes_back_unaided(instance: Instance) -> None:
    """kill -9 of the gateway: callers wait in the backlog of the same socket until a fresh one answers."""
    instance.up()
    [worker] = instance.status()["workers"]

    os.kill(worker["pid"], signal.SIGKILL)

    assert instance.call() == 200
    [fresh] = instance.status()["workers"]
    assert fresh["pid"] != worker["pid"]
    assert fresh["restarts"] == 1


def test_no_orphans_when_the_supervisor_is_killed(instance: Instance) -> None:
    """`on_supervisor_loss: stop`: kill -9 of headrace itself ends engine, gateway and ledger too."""
    instance.up()

    os.kill(instance.supervisor_pid(), signal.SIGKILL)

    wait_until(lambda: instance.processes() == {}, "the end of all its processes")


def test_engines_outlive_the_supervisor_and_are_adopted(instance: Instance) -> None:
    """`on_supervisor_loss: keep`: after kill -9, callers are served on; the next `up` adopts the very same engine."""
    instance.declaration["on_supervisor_loss"] = "keep"
    instance.write()
    instance.up()
    engines, [worker] = instance.engine_pids(), instance.status()["workers"]

    with instance.under_load() as results:
        os.kill(instance.supervisor_pid(), signal.SIGKILL)
        assert instance.call() == 200, "served without a supervisor"
        instance.up()

    assert Counter(results).keys() == {200}
    assert instance.engine_pids() == engines
    wait_until(lambda: len(instance.status()["workers"]) == 1, "the old worker's leave")
    assert instance.status()["workers"][0]["pid"] != worker["pid"]
    assert instance.status()["replicas"][0]["restarts"] == 0
    assert instance.run("down").returncode == 0
    assert instance.processes() == {}


def test_down_also_ends_what_a_lost_supervisor_left(instance: Instance) -> None:
    """`down` without a supervisor ends the engines and workers that one has left."""
    instance.declaration["on_supervisor_loss"] = "keep"
    instance.write()
    instance.up()
    os.kill(instance.supervisor_pid(), signal.SIGKILL)

    done = instance.run("down")

    assert done.returncode == 0
    assert "1 engine(s), 1 worker(s)" in done.stdout
    wait_until(lambda: instance.processes() == {}, "the end of all its processes")


def test_a_replica_is_restarted_without_a_lost_request(instance: Instance) -> None:
    """`engine restart` drains one of two replicas and starts it anew; every caller is answered meanwhile."""
    instance.declaration["pools"]["chat"]["replicas"] = 2
    instance.write()
    instance.up()
    wait_until(lambda: sum(e["state"] == "ready" for e in instance.status()["endpoints"]) == 2, "two endpoints")
    before = instance.engine_pids()

    with instance.under_load() as results:
        done = instance.run("engine", "restart", "chat/1", "--json")
        assert done.returncode == 0, done.stderr
        fresh = json.loads(done.stdout)["data"]

    assert Counter(results).keys() == {200}
    assert fresh["phase"] == "ready"
    assert instance.engine_pids() == {"chat/0": before["chat/0"], "chat/1": fresh["pid"]}
    assert fresh["pid"] != before["chat/1"]
    wrong = instance.run("engine", "restart", "chat/7")
    assert wrong.returncode == 2
    assert "chat/7" in wrong.stderr
    assert 'Did you mean "chat/' in wrong.stderr


def test_an_upgrade_loses_no_request_and_reloads_no_engine(instance: Instance) -> None:
    """`reload --upgrade` replaces supervisor and gateway under load; every request is answered by the same engine."""
    instance.up()
    engines, supervisor = instance.engine_pids(), instance.supervisor_pid()
    [worker] = instance.status()["workers"]

    with instance.under_load() as results:
        done = instance.run("reload", "--upgrade")
        assert done.returncode == 0, done.stderr

    assert Counter(results).keys() == {200}
    assert instance.engine_pids() == engines
    assert instance.supervisor_pid() == supervisor, "the same process, executing the installed program"
    [fresh] = instance.status()["workers"]
    assert fresh["pid"] != worker["pid"]


def test_a_reload_under_load_loses_no_request(instance: Instance) -> None:
    """A changed pool setting replaces its replica beside the running one; no request fails."""
    instance.up()
    instance.declaration["pools"]["chat"]["batching"] = {"max_sequences": 2}
    instance.write()

    with instance.under_load() as results:
        done = instance.run("reload")
        assert done.returncode == 0, done.stderr
        assert "pools.chat.batching.max_sequences: null -> 2" in done.stdout
        wait_until(lambda: list(instance.engine_pids()) == ["chat/1"], "the replacement")

    assert Counter(results).keys() == {200}


def test_an_invalid_reload_changes_nothing(instance: Instance) -> None:
    """A broken file, and one that only a restart can apply, are refused by name; everything goes on as it was."""
    instance.up()
    before = instance.status()
    instance.declaration["pools"]["chat"]["batching"] = {"max_sequences": "many"}
    instance.write()

    done = instance.run("reload")

    assert done.returncode == 1
    assert "pools.chat.batching.max_sequences" in done.stdout
    instance.declaration["pools"]["chat"]["batching"] = {"max_sequences": 3}
    instance.declaration["gateway"]["control"] = "127.0.0.1:1"
    instance.write()
    done = instance.run("reload")
    assert done.returncode == 1
    assert "gateway.control" in done.stdout
    after = instance.status()
    assert after["plan_revision"] == before["plan_revision"]
    assert [replica["pid"] for replica in after["replicas"]] == [replica["pid"] for replica in before["replicas"]]
    assert instance.call() == 200


def test_hangup_reloads(instance: Instance) -> None:
    """SIGHUP does what `headrace reload` does."""
    instance.up()
    instance.declaration["pools"]["chat"]["replicas"] = 2
    instance.write()

    os.kill(instance.supervisor_pid(), signal.SIGHUP)

    wait_until(lambda: len(instance.status()["replicas"]) == 2, "the second replica")


def test_a_taken_port_is_named_with_its_holder(instance: Instance) -> None:
    """Where another process listens already, `up` says which setting, which address and who; nothing is started."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", instance.port))
        holder.listen()

        done = instance.run("up", "--detach")

    assert done.returncode == 1
    assert f"gateway.listen: cannot listen on 127.0.0.1:{instance.port}" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert instance.processes() == {}


def test_two_supervisors_on_one_folder_are_refused(instance: Instance) -> None:
    """A second supervisor on the same state folder is refused with the first one's pid."""
    instance.up()

    argv = [sys.executable, "-m", "headrace.wiring", "--config", str(instance.config)]
    second = subprocess.run(argv, env=instance.environment, capture_output=True, text=True, timeout=60)

    assert second.returncode == 1
    assert f"pid {instance.supervisor_pid()}" in second.stderr


@pytest.mark.slow
def test_a_crash_loop_shows_the_engines_last_words(tmp_path: Path) -> None:
    """An engine that dies at every start: `up` ends with its last words instead of waiting for ever."""
    instance = Instance(tmp_path, STANDIN_DIE="3")
    try:
        done = instance.run("up", "--detach")

        assert done.returncode == 1
        assert "crash loop: 5 deaths" in done.stderr
        assert "out of memory while allocating the KV cache" in done.stderr
        assert instance.run("down").returncode == 0
        assert instance.processes() == {}
    finally:
        instance.end()


def test_ctrl_c_while_detaching_leaves_it_running_and_says_so(tmp_path: Path) -> None:
    """Ctrl-C ends the waiting, not the instance; the next `up` waits again and still shows the key."""
    has_loaded = tmp_path / "has-loaded"
    instance = Instance(tmp_path, STANDIN_LOAD_UNTIL=str(has_loaded))
    try:
        process = instance.begin("up", "--detach")
        wait_until(lambda: (instance.state_dir / "run" / "supervisor.json").exists(), "the supervisor")

        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)

        assert (process.returncode, out) == (1, "")
        assert f"headrace goes on in the background (pid {instance.supervisor_pid()})" in said
        assert "headrace down" in said
        has_loaded.touch()
        welcome = instance.up()
        assert welcome["api_key"]
        assert instance.call() == 200
    finally:
        instance.end()


def test_ctrl_c_in_the_foreground_drains_and_stops(instance: Instance) -> None:
    """In the foreground one Ctrl-C stops everything."""
    argv = [sys.executable, "-m", "headrace.cli.main", "up", "--json"]
    process = subprocess.Popen(
        argv, env=instance.environment, cwd=instance.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("\n}"):
        text += process.stdout.readline()

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "stopped" in errors
    assert instance.processes() == {}
