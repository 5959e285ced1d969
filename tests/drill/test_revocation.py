"""A key revoked with the command line, seen from a caller of the whole instance."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.end()


def test_a_revoked_key_is_refused_and_others_are_not(instance: Instance) -> None:
    """`keys revoke` takes effect at the gateway without a reload; a new key works as soon as it is shown."""
    instance.up()
    first = instance.key
    made = json.loads(instance.run("keys", "create", "--tenant", "default", "--json").stdout)["data"]
    instance.key = made["key"]
    wait_until(lambda: instance.call() == 200, "the new key to be known")

    done = instance.run("keys", "revoke", made["record"]["key_id"])
    assert done.returncode == 0, done.stderr
    wait_until(lambda: instance.call() == 401, "the revoked key's refusal")

    instance.key = first
    assert instance.call() == 200
