"""A full disk keeps nothing from running that an operator asks for."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """For that process the disk is as if full: what it would write is refused."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_reload_on_a_full_disk_is_carried_out_whole(instance: Instance) -> None:
    """The new replica starts though nothing can be written down, which is made up for once there is room."""
    pid, noted = instance.supervisor_pid(), instance.state_dir / "run" / "supervisor.json"
    before = json.loads(noted.read_text())["declaration_digest"]
    instance.declaration["pools"]["chat"]["replicas"] = 2
    instance.write()
    with full_disk(pid):
        done = instance.run("reload")
        assert (done.returncode, done.stderr) == (0, "")
        wait_until(lambda: sorted(instance.engine_pids()) == ["chat/0", "chat/1"], "the second replica")
        assert json.loads(noted.read_text())["declaration_digest"] == before
    wait_until(lambda: json.loads(noted.read_text())["declaration_digest"] != before, "the file to be written again")
    assert instance.call() == 200


def test_no_upgrade_on_a_full_disk(instance: Instance) -> None:
    """A supervisor that could not write anything as it starts is not put in place of the one that runs."""
    pid = instance.supervisor_pid()
    with full_disk(pid):
        refused = instance.run("reload", "--upgrade")
        assert refused.returncode != 0
        assert "nothing was upgraded" in refused.stdout + refused.stderr
        assert f"{instance.state_dir} cannot be written" in refused.stdout + refused.stderr
        assert (instance.supervisor_pid(), instance.call()) == (pid, 200)
    assert instance.run("reload", "--upgrade").returncode == 0
    assert instance.call() == 200


def test_the_status_shows_what_waits_in_a_workers_memory(instance: Instance) -> None:
    """Records that a full disk does not take are shown, and not lost: they are written once there is room."""
    (worker,) = instance.status()["workers"]
    with full_disk(worker["pid"]):
        assert [instance.call() for _ in range(3)] == [200] * 3
        wait_until(lambda: instance.status()["ledger"]["pending_records"] >= 3, "the status to show them")
        assert "not on disk yet" in instance.run("status").stdout
    wait_until(lambda: instance.status()["ledger"]["pending_records"] == 0, "them to be written")
    wait_until(lambda: instance.status()["ledger"]["rows"] >= 3, "them to reach the database")
