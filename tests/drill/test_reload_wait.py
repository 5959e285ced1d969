"""`headrace reload` says what becomes of replicas, and with --wait how it went."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """A running instance."""
    made = Instance(tmp_path)
    made.up()
    yield made
    made.end()


def test_a_reload_is_foretold_and_waited_for(instance: Instance) -> None:
    """A dry run names the replicas that would go and come; --wait returns when callers get the new one."""
    instance.declaration["pools"]["chat"]["batching"] = {"max_sequences": 2}
    instance.write()

    foretold = instance.run("reload", "--dry-run")
    assert foretold.returncode == 0
    assert "pool chat: chat/1 would start; chat/0 would end" in foretold.stdout
    assert list(instance.engine_pids()) == ["chat/0"]

    done = instance.run("reload", "--wait", "--timeout-s", "60", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["data"]
    assert report["pools"] == [{"pool": "chat", "starts": ["chat/1"], "ends": ["chat/0"]}]
    assert [(one["endpoint"], one["phase"]) for one in report["replicas"]] == [("chat/1", "ready")]
    assert instance.call() == 200


def test_a_replica_that_fails_fails_the_wait(instance: Instance) -> None:
    """A wrong checksum: exit 3 with the reason, the old replica serves on, and `status` keeps saying why."""
    instance.declaration["models"]["tiny"]["sha256"] = "0" * 64
    instance.write()

    done = instance.run("reload", "--wait")

    assert done.returncode == 3, done.stderr
    assert "chat/1 has failed: " in done.stdout
    assert "checksum mismatch" in done.stdout
    assert instance.call() == 200
    again = instance.run("reload", "--wait")
    assert again.returncode == 3, "nothing has changed, but it is not well either"
    assert "state        ready; chat/1 fails" in instance.run("status").stdout

    del instance.declaration["models"]["tiny"]["sha256"]
    instance.write()
    mended = instance.run("reload")
    assert mended.returncode == 0
    assert "chat/1 ends" in mended.stdout
    wait_until(lambda: list(instance.engine_pids()) == ["chat/0"], "the failed replica to go")
