"""A whole instance with several gateway workers: workers, supervisor, Redis and PostgreSQL are killed under load."""

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.conftest import PostgresServer
from tests.drill.instance import Instance, wait_until
from tests.fixtures.redis_server import RedisServer

from headrace.database.connect import open_database
from headrace.database.tables import REQUESTS

PLENTY = {"default": {"limits": {"requests_per_min": 100_000, "concurrent_requests": 1000}}}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance of two workers that is not started yet; the test adds the rest."""
    made = Instance(tmp_path)
    made.declaration["gateway"]["workers"] = 2
    made.declaration["tenants"] = PLENTY
    made.write()
    yield made
    made.end()


def troubles(instance: Instance) -> list[str | None]:
    """What each serving worker says of its store of shared limits."""
    statuses = [worker["status"] for worker in instance.status()["workers"]]
    return [status["sharing_trouble"] for status in statuses if status is not None and not status["is_draining"]]


def metric(instance: Instance, name: str) -> float | None:
    """A sample of the merged metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{instance.control_port}/metrics", timeout=30) as answer:
        found = [line for line in answer.read().decode().splitlines() if line.startswith(name + " ")]
    return float(found[0].rsplit(" ", 1)[1]) if found else None


def test_two_workers_outlive_each_other_and_their_supervisor(instance: Instance) -> None:
    """A worker is killed, then the program is upgraded under load: the workers hold their limits together again."""
    instance.up()
    assert troubles(instance) == ["", ""]
    wait_until(lambda: metric(instance, "headrace_sharing_members") == 2, "both workers to share")

    victim = instance.status()["workers"][0]["pid"]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: troubles(instance) == ["", ""] and instance.call() == 200, "a fresh worker that shares")
    workers = instance.status()["workers"]
    assert victim not in [worker["pid"] for worker in workers]
    assert sorted(worker["restarts"] for worker in workers) == [0, 1]

    with instance.under_load() as results:
        before = instance.supervisor_pid(), [worker["pid"] for worker in instance.status()["workers"]]
        assert instance.run("reload", "--upgrade").returncode == 0
        wait_until(
            lambda: not {worker["pid"] for worker in instance.status()["workers"]} & set(before[1]), "new workers"
        )
        wait_until(lambda: troubles(instance) == ["", ""], "the new workers to share")
    assert set(results) == {200}


@pytest.mark.postgres
def test_redis_and_postgresql_are_killed_under_load(
    mortal_redis: RedisServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """No request fails when both stores crash and come back, and the ledger has each request once."""
    with postgres_server.database() as url:
        instance = Instance(tmp_path, REDIS_URL=mortal_redis.url, DATABASE_URL=url)
        try:
            instance.declaration["gateway"] |= {"workers": 2, "sharing": {"redis": "${env:REDIS_URL}"}}
            instance.declaration["ledger"] = {"database": "${env:DATABASE_URL}"}
            instance.declaration["tenants"] = PLENTY
            instance.write()
            instance.up()
            wait_until(lambda: metric(instance, "headrace_sharing_members") == 2, "both workers to share")
            with instance.under_load() as results:
                mortal_redis.kill()
                wait_until(lambda: metric(instance, "headrace_sharing_lost") == 1, "the loss of Redis to be seen")
                postgres_server.kill()
                seen = len(results)
                wait_until(lambda: len(results) > seen + 20, "requests without either store")
                mortal_redis.start()
                postgres_server.start()
                wait_until(lambda: metric(instance, "headrace_sharing_lost") == 0, "sharing again")
            assert set(results) == {200}
            wait_until(lambda: rows(url)[0] >= len(results), "the ledger to catch up")
            total, distinct = rows(url)
            assert total == distinct == len(results)
            assert instance.run("down").returncode == 0
        finally:
            instance.end()


def rows(url: str) -> tuple[int, int]:
    """Requests in the ledger, and how many different ones."""
    database = open_database(url)
    try:
        with database.reading() as connection:
            found = connection.execute(select(func.count(), func.count(REQUESTS.c.uid.distinct()))).one()
            return int(found[0]), int(found[1])
    finally:
        database.close()
