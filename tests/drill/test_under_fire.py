"""Engines killed under load, and a gateway replaced under callers that keep their connections: real processes."""

import http.client
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import DEADLINE_S, Instance, wait_until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.end()


class KeptConnection(threading.Thread):
    """A caller that sends request after request on one connection, opening a new one only when told to close."""

    def __init__(self, instance: Instance, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.statuses: list[int | str] = []
        self.closes = 0
        self._instance = instance
        self._is_over = is_over

    def run(self) -> None:
        connection = self._open()
        body = json.dumps({"model": "tiny", "messages": [], "metadata": {"sleep_s": "0.02"}})
        headers = {"authorization": f"Bearer {self._instance.key}", "content-type": "application/json"}
        while not self._is_over.is_set():
            try:
                connection.request("POST", "/v1/chat/completions", body, headers)
                response = connection.getresponse()
                response.read()
                self.statuses.append(response.status)
            except (OSError, http.client.HTTPException) as error:
                self.statuses.append(repr(error))
                connection.close()
                connection = self._open()
                continue
            if response.getheader("connection") == "close":
                self.closes += 1
                connection.close()
                connection = self._open()
        connection.close()

    def _open(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._instance.port, timeout=DEADLINE_S)


def test_an_upgrade_loses_no_request_of_a_kept_connection(instance: Instance) -> None:
    """Callers with keep-alive are told to reconnect, one answer at a time; none is cut off between two requests."""
    instance.up()
    engines = instance.engine_pids()
    is_over = threading.Event()
    callers = [KeptConnection(instance, is_over) for _ in range(6)]
    for caller in callers:
        caller.start()
    wait_until(lambda: all(len(caller.statuses) > 3 for caller in callers), "traffic")

    assert instance.run("reload", "--upgrade").returncode == 0
    wait_until(lambda: all(caller.closes for caller in callers), "every caller moved to the new gateway")
    is_over.set()
    for caller in callers:
        caller.join(DEADLINE_S)

    assert Counter(status for caller in callers for status in caller.statuses).keys() == {200}
    assert instance.engine_pids() == engines


def test_kill_of_one_of_two_engines_fails_no_request(instance: Instance) -> None:
    """Requests in flight at a killed engine are answered by the other one, time and again."""
    instance.declaration["pools"]["chat"]["replicas"] = 2
    instance.write()
    instance.up()
    wait_until(lambda: sum(e["state"] == "ready" for e in instance.status()["endpoints"]) == 2, "two endpoints")

    with instance.under_load(8) as results:
        for _ in range(3):
            victim, pid = next(iter(instance.engine_pids().items()))
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda v=victim, p=pid: instance.engine_pids().get(v) not in (None, p), "a fresh engine")
            wait_until(lambda: sum(e["state"] == "ready" for e in instance.status()["endpoints"]) == 2, "both ready")

    assert len(results) > 50
    assert Counter(results).keys() == {200}


def test_kill_of_the_only_engine_gives_clear_errors_and_heals(instance: Instance) -> None:
    """Nobody hangs: each request is answered, or refused as the platform's or the engine's fault; then all is well."""
    instance.up()
    pid = instance.engine_pids()["chat/0"]

    with instance.under_load(6) as results:
        wait_until(lambda: 200 in results, "answers by the one that is killed")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: instance.engine_pids().get("chat/0") not in (None, pid), "a fresh engine")
        count = len(results)
        wait_until(lambda: 200 in results[count:], "answers by it")

    assert set(results) <= {200, 502, 503}
    assert instance.call() == 200


def test_a_frozen_engine_leaves_rotation_and_returns(instance: Instance) -> None:
    """An engine that is stopped (SIGSTOP) is left out by probes; the other serves on; thawed, it is used again."""
    instance.declaration["pools"]["chat"] |= {"replicas": 2, "answer_timeout_s": 3}
    instance.declaration["pools"]["chat"]["probe"] = {"interval_s": 0.3, "timeout_s": 0.5}
    instance.write()
    instance.up()
    wait_until(lambda: sum(e["state"] == "ready" for e in instance.status()["endpoints"]) == 2, "two endpoints")
    frozen, pid = next(iter(instance.engine_pids().items()))

    def state_of(endpoint: str) -> str:
        return next(e["state"] for e in instance.status()["endpoints"] if e["endpoint"] == endpoint)

    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(frozen) not in ("ready", "busy"), "out of rotation")
        assert [instance.call() for _ in range(5)] == [200] * 5
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: state_of(frozen) == "ready", "back in rotation")
