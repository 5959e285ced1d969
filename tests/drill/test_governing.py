"""A whole instance whose tenants are changed while callers call: in force, on record, whatever is killed."""

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drill.instance import Instance, wait_until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    made.declaration["tenants"] = {"default": {}, "search": {"limits": {"requests_per_min": 100000}}}
    made.write()
    yield made
    made.end()


def said(instance: Instance, *words: str) -> Any:
    done = instance.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def key_of(instance: Instance, tenant: str, *words: str) -> str:
    return said(instance, "keys", "create", "--tenant", tenant, *words)["key"]


def test_a_tenant_suspended_under_load_is_refused_while_others_are_served(instance: Instance) -> None:
    """Requests in work are finished, others are not touched, and resuming takes effect as soon."""
    instance.up()
    quiet, instance.key = instance.key, key_of(instance, "search")
    wait_until(lambda: instance.call() == 200, "the tenant's key to be known")
    running: list[int | str] = []
    long_one = threading.Thread(target=lambda: running.append(instance.call(sleep_s=3.0)))
    with instance.under_load(3) as results:
        long_one.start()
        time.sleep(0.2)
        said(instance, "tenants", "suspend", "search", "--reason", "runaway job")
        wait_until(lambda: instance.call() == 403, "the refusal")
        status, body = instance.ask()
        assert (status, json.loads(body)["error"]["code"]) == (403, "suspended")
        search, instance.key = instance.key, quiet
        assert instance.call() == 200
        instance.key = search
    long_one.join()
    assert running == [200]
    assert set(results) <= {200, 403}
    said(instance, "tenants", "resume", "search")
    wait_until(lambda: instance.call() == 200, "requests to be taken again")
    actions = [entry["action"] for entry in said(instance, "audit", "--tenant", "search")]
    assert actions[:2] == ["tenant.resume", "tenant.suspend"]


def test_a_tenant_made_on_the_command_line_calls_at_once_and_keeps_its_limit(instance: Instance) -> None:
    """No reload, no file: made, limited, shown with what is used, changed, deleted; and it survives a restart."""
    instance.up()
    said(instance, "tenants", "create", "ads", "--set", "limits.requests_per_min=2")
    instance.key = key_of(instance, "ads")
    wait_until(lambda: instance.call() == 200, "the new tenant's key to be known")
    statuses = [instance.call() for _ in range(3)]
    assert statuses.count(429) >= 1
    [limit] = [one for one in said(instance, "quota", "--tenant", "ads") if one["level"] == "tenant"]
    assert (limit["limit_name"], limit["limit"], limit["used"], limit["remaining"]) == ("requests_per_min", 2, 2, 0)
    said(instance, "tenants", "change", "ads", "--set", "limits.requests_per_min=1000")
    wait_until(lambda: instance.call() == 200, "the wider limit")
    refused = instance.run("tenants", "change", "search", "--set", "weight=2")
    assert refused.returncode == 1
    assert f"{instance.config}:" in refused.stderr
    assert instance.run("down").returncode == 0
    instance.up()
    instance.key = key_of(instance, "ads", "--name", "after the restart")
    wait_until(lambda: instance.call() == 200, "the tenant after a restart")
    said(instance, "tenants", "delete", "ads", "--revoke-keys")
    wait_until(lambda: instance.call() == 401, "the refusal of a deleted tenant's key")


def test_an_edited_file_is_on_record_even_where_the_supervisor_is_killed(instance: Instance) -> None:
    """Reloaded, or killed in the middle and started again: the change of a tenant is noted once."""
    instance.up()
    instance.declaration["tenants"]["search"]["weight"] = 2
    instance.write()
    assert instance.run("reload").returncode == 0
    wait_until(lambda: changes(instance, "tenant.change") == 1, "the reload to be noted")
    instance.declaration["tenants"]["search"]["weight"] = 3
    instance.write()
    os.kill(instance.supervisor_pid(), signal.SIGKILL)
    wait_until(lambda: not instance.processes(), "everything of the killed instance to be gone")
    instance.up()
    wait_until(lambda: changes(instance, "tenant.change") == 2, "the edit to be noted at the next start")
    newest = said(instance, "audit", "--tenant", "search")[0]
    assert (newest["channel"], newest["before"]["weight"], newest["after"]["weight"]) == ("file", 2.0, 3.0)


def changes(instance: Instance, action: str) -> int:
    return sum(entry["action"] == action for entry in said(instance, "audit"))


def test_a_command_killed_at_any_moment_leaves_both_the_change_and_its_line_or_neither(instance: Instance) -> None:
    """kill -9 while keys are made: the database never has one without the other."""
    said(instance, "keys", "list")
    for delay_s in (0.4, 0.55, 0.7, 0.9):
        process = instance.begin("keys", "create", "--tenant", "search")
        time.sleep(delay_s)
        process.kill()
        process.wait()
    said(instance, "keys", "create", "--tenant", "search")
    with sqlite3.connect(instance.state_dir / "headrace.db") as database:
        keys = {row[0] for row in database.execute("SELECT key_id FROM keys")}
        noted = {row[0] for row in database.execute("SELECT name FROM audit WHERE action = 'key.create'")}
    database.close()
    assert keys == noted
    assert keys
