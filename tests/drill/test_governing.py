"""A whole instance whose tenants are changed while callers call: in force, on record, whatever is killed."""

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drill.instance import Instance, wait_until

from headrace.database.migrate import migrate


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    made.declaration["tenants"] = {"default": {}, "search": {"limits": {"requests_per_min": 100000}}}
    made.write()
    yield made
    made.end()


class OwnSocket(http.client.HTTPConnection):
    """The instance's own Unix socket, as the command line uses it."""

    def __init__(self, path: Path) -> None:
        super().__init__("headrace", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def control(instance: Instance, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the control API; a start of a command takes a hundred times as long."""
    connection = OwnSocket(instance.state_dir / "run" / "control.sock")
    try:
        connection.request(method, f"/api/v1/{path}", json.dumps(body or {}))
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    assert answer.status < 300, content
    return json.loads(content)["data"]


def key_of(instance: Instance, tenant: str) -> str:
    return control(instance, "POST", "keys", {"tenant": tenant})["key"]


def test_a_tenant_suspended_under_load_is_refused_while_others_are_served(instance: Instance) -> None:
    """With the command line; requests in work are finished, and resuming takes effect as soon."""
    instance.up()
    quiet, instance.key = instance.key, key_of(instance, "search")
    wait_until(lambda: instance.call() == 200, "the tenant's key to be known")
    running: list[int | str] = []
    long_one = threading.Thread(target=lambda: running.append(instance.call(sleep_s=3.0)))
    long_one.start()
    wait_until(lambda: control(instance, "GET", "status")["endpoints"][0]["in_flight"] == 1, "a request in work")
    with instance.under_load(3) as results:
        assert instance.run("tenants", "suspend", "search", "--reason", "runaway job").returncode == 0
        wait_until(lambda: instance.call() == 403, "the refusal")
        status, body = instance.ask()
        assert (status, json.loads(body)["error"]["code"]) == (403, "suspended")
        search, instance.key = instance.key, quiet
        assert instance.call() == 200
        instance.key = search
    long_one.join()
    assert running == [200]
    assert set(results) <= {200, 403}
    control(instance, "POST", "tenants/search/resume")
    assert instance.call() == 200
    actions = [entry["action"] for entry in control(instance, "GET", "audit?tenant=search")]
    assert actions[:2] == ["tenant.resume", "tenant.suspend"]


def test_a_tenant_made_over_the_api_calls_at_once_and_keeps_its_limit_over_a_restart(instance: Instance) -> None:
    """No reload, no file: made, limited, shown with what is used, changed, deleted."""
    instance.up()
    control(instance, "POST", "tenants", {"name": "ads", "section": {"limits": {"requests_per_min": 2}}})
    instance.key = key_of(instance, "ads")
    assert [instance.call() for _ in range(3)] == [200, 200, 429]
    done = instance.run("quota", "--tenant", "ads", "--json")
    [limit] = [one for one in json.loads(done.stdout)["data"] if one["level"] == "tenant"]
    assert (limit["limit_name"], limit["limit"], limit["used"], limit["remaining"]) == ("requests_per_min", 2, 2, 0)
    control(instance, "PATCH", "tenants/ads", {"section": {"limits": {"requests_per_min": 1000}}})
    assert instance.call() == 200
    refused = instance.run("tenants", "change", "search", "--set", "weight=2")
    assert (refused.returncode, f"{instance.config}:" in refused.stderr) == (1, True)
    os.kill(instance.supervisor_pid(), signal.SIGKILL)
    wait_until(lambda: not instance.processes(), "everything of the killed instance to be gone")
    instance.up()
    assert instance.call() == 200
    control(instance, "DELETE", "tenants/ads?revoke_keys=true")
    assert instance.call() == 401


def test_an_edited_file_is_on_record_even_where_the_supervisor_is_killed(instance: Instance) -> None:
    """Reloaded, or edited while it was down: the change of a tenant is noted once."""
    instance.up()
    edit(instance, weight=2)
    control(instance, "POST", "reload")
    wait_until(lambda: changes(instance) == 1, "the reload to be noted")
    os.kill(instance.supervisor_pid(), signal.SIGKILL)
    wait_until(lambda: not instance.processes(), "everything of the killed instance to be gone")
    edit(instance, weight=3)
    instance.up()
    assert changes(instance) == 2
    newest = control(instance, "GET", "audit?tenant=search")[0]
    assert (newest["channel"], newest["before"]["weight"], newest["after"]["weight"]) == ("file", 2.0, 3.0)


def edit(instance: Instance, *, weight: int) -> None:
    instance.declaration["tenants"]["search"]["weight"] = weight
    instance.write()


def changes(instance: Instance) -> int:
    return sum(entry["action"] == "tenant.change" for entry in control(instance, "GET", "audit"))


KILLED_AT_WORK = """
import os, random, signal, sys, time
from headrace.database.connect import open_database
from headrace.domain.clock import SystemClock
from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.key_store import KeyStore

random.seed(7)
for _ in range(40):
    child = os.fork()
    if child == 0:
        keys = KeyStore(open_database(sys.argv[1]), SystemClock())
        while True:
            keys.create_key(tenant=TenantId("a"), scope=Scope.INFERENCE)
    time.sleep(random.uniform(0.01, 0.08))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_process_killed_at_any_moment_leaves_both_the_change_and_its_line_or_neither(tmp_path: Path) -> None:
    """kill -9, forty times, in the middle of making keys: the database never has one without the other."""
    path = tmp_path / "headrace.db"
    migrate(f"sqlite:///{path}")
    subprocess.run([sys.executable, "-c", KILLED_AT_WORK, f"sqlite:///{path}"], check=True, timeout=60)
    database = sqlite3.connect(path)
    keys = {row[0] for row in database.execute("SELECT key_id FROM keys")}
    noted = [row[0] for row in database.execute("SELECT name FROM audit WHERE action = 'key.create'")]
    [version] = database.execute("SELECT version FROM changes WHERE subject = 'keys'").fetchone()
    database.close()
    assert keys == set(noted)
    assert len(keys) == len(noted) == version > 0
