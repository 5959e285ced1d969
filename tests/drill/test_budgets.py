"""A spent budget stays spent: over a restart of everything, a killed worker, and a reload (issue: acceptance 5)."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until


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
    answers = []
    while not answers or answers[-1] == 200:
        answers.append(instance.call())
        assert len(answers) < 200
    assert answers[-1] == 429
    assert len(answers) > 3

    def is_in_the_ledger() -> bool:
        usage = instance.run("usage", "--json").stdout
        return f'"completed":{len(answers) - 1}' in usage.replace(" ", "")

    wait_until(is_in_the_ledger, "the ledger")
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


def _answer(instance: Instance) -> int | None:
    try:
        return instance.call()
    except OSError:
        return None
