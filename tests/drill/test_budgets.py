"""A spent budget stays spent: over a restart of everything, a killed worker, and a reload (issue: acceptance 5)."""

import os
import signal
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until
from tests.fixtures.redis_server import RedisServer


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    made.declaration["prices"] = {"version": "2026-11", "models": {"tiny": {"input_per_million": 1000}}}
    made.declaration["tenants"] = {"default": {"budget": {"per_day": 0.1, "per_month": 1}}}
    made.write()
    yield made
    made.end()


def test_a_spent_budget_stays_spent(instance: Instance) -> None:
    """What was spent is read back from the ledger by every new worker, and no reload forgets it."""
    instance.up()
    _spend_all(instance)
    assert instance.run("reload").returncode == 0
    assert instance.call() == 429
    (worker,) = [pid for pid, line in instance.processes().items() if "headrace.gateway" in line]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: _answer(instance) is not None, "the next worker")
    assert instance.call() == 429
    assert instance.run("down").returncode == 0
    instance.up()
    assert instance.call() == 429
    instance.declaration["tenants"]["default"]["budget"] = {"per_day": 0.2, "per_month": 1}
    instance.write()
    assert instance.run("reload").returncode == 0
    assert instance.call() == 200


@pytest.mark.parametrize("through", ["coordinator", "redis"])
def test_two_workers_do_not_spend_it_again(through: str, mortal_redis: RedisServer, instance: Instance) -> None:
    """With two workers, each of a fresh pair refuses from its first request on: after an upgrade, a kill and a restart
    of everything, and also where Redis, which they share through, is gone all the while.
    """
    instance.declaration["gateway"]["workers"] = 2
    if through == "redis":
        instance.declaration["gateway"]["sharing"] = {"redis": mortal_redis.url}
    instance.write()
    instance.up()
    _spend_all(instance)
    if through == "redis":
        mortal_redis.kill()
    before = _workers(instance)
    assert instance.run("reload", "--upgrade").returncode == 0
    assert _calls(instance) == {429}
    wait_until(lambda: not _workers(instance) & before, "the workers of before to leave")
    os.kill(min(_workers(instance)), signal.SIGKILL)
    assert _calls(instance) == {429}
    wait_until(lambda: len(_workers(instance)) == 2, "the next worker")
    assert _calls(instance) == {429}
    assert instance.run("down").returncode == 0
    instance.up()
    assert _calls(instance) == {429}
    budget = instance.declaration["tenants"]["default"].pop("budget")
    instance.write()
    assert instance.run("reload").returncode == 0
    assert _calls(instance) == {200}
    instance.declaration["tenants"]["default"]["budget"] = budget
    instance.write()
    assert instance.run("reload").returncode == 0
    assert _calls(instance) == {429}, "what was spent is known when a budget is declared"


def _spend_all(instance: Instance) -> None:
    """Until a call is refused; the ledger knows of it all when this returns."""
    answers: list[int] = []
    while not answers or answers[-1] == 200:
        answers.append(instance.call())
        assert len(answers) < 200
    assert answers[-1] == 429
    assert len(answers) > 3

    def is_in_the_ledger() -> bool:
        usage = instance.run("usage", "--json").stdout
        return f'"completed":{len(answers) - 1}' in usage.replace(" ", "")

    wait_until(is_in_the_ledger, "the ledger")


def _workers(instance: Instance) -> set[int]:
    return {pid for pid, line in instance.processes().items() if "headrace.gateway " in f"{line} "}


def _calls(instance: Instance) -> set[int | None]:
    """What so many calls get that each of two workers has some; None: a worker died with the connection."""
    return {_answer(instance) for _ in range(12)} - {None}


def _answer(instance: Instance) -> int | None:
    try:
        return instance.call()
    except (OSError, HTTPException):
        return None
