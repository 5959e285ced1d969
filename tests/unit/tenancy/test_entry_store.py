"""Tenants of the API and suspensions in the database: many who change at once, none of whose changes is lost unseen."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.domain.admin import ITSELF
from headrace.domain.clock import SystemClock
from headrace.domain.quota import Level
from headrace.tenancy.audit import read_audit
from headrace.tenancy.conflict import ConflictError
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.overlay import EntryKind

TENANT = EntryKind.TENANT


@pytest.fixture
def database(database_url):
    migrate(database_url)
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def lone_store(tmp_path):
    """On SQLite alone, for what does not depend on the database."""
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    migrate(url)
    opened = open_database(url)
    yield EntryStore(opened, SystemClock())
    opened.close()


@pytest.fixture
def store(database) -> EntryStore:
    return EntryStore(database, SystemClock())


def outcomes(calls: list[Callable[[], Any]]) -> list[str]:
    """What became of calls made at the same moment."""

    def tell(call: Callable[[], Any]) -> str:
        try:
            call()
        except ConflictError:
            return "conflict"
        return "done"

    with ThreadPoolExecutor(len(calls)) as pool:
        return sorted(pool.map(tell, calls))


def test_what_is_stored_is_read_back_in_its_order(lone_store):
    """Organisations before tenants, each by age; every change is seen by one number."""
    versions = [lone_store.read_version()]
    for kind, name in ((TENANT, "b"), (TENANT, "a"), (EntryKind.ORGANISATION, "z")):
        lone_store.create_entry(kind, name, {"weight": 2} if kind is TENANT else {}, ITSELF)
        versions.append(lone_store.read_version())
    lone_store.suspend(Level.PROJECT, "a/web", "why", tenant="a", by=ITSELF)
    overlay = lone_store.read()
    assert [entry.name for entry in overlay.entries] == ["z", "b", "a"]
    assert [(one.level, one.name, one.reason) for one in overlay.suspensions] == [(Level.PROJECT, "a/web", "why")]
    assert versions == sorted(set(versions))


def test_of_several_who_make_the_same_tenant_one_succeeds(store, database):
    """The others are told that it exists."""
    made = [lambda weight=weight: store.create_entry(TENANT, "a", {"weight": weight}, ITSELF) for weight in range(4)]
    assert outcomes(made) == ["conflict"] * 3 + ["done"]
    assert len(read_audit(database)) == 1


def test_of_several_who_change_the_same_version_one_succeeds(store, database):
    """Nobody's change disappears under another's."""
    store.create_entry(TENANT, "a", {}, ITSELF)
    bodies = ({"weight": 2}, {"weight": 3})
    changes = [lambda body=body: store.change_entry(TENANT, "a", body, 1, ITSELF) for body in bodies]
    assert outcomes(changes) == ["conflict", "done"]
    entry = store.find_entry(TENANT, "a")
    assert entry is not None
    assert entry.version == 2
    assert read_audit(database)[0].after == entry.body


def test_several_who_suspend_at_once_leave_one_suspension(store):
    """It is one fact, however many say it."""
    calls = [lambda: store.suspend(Level.TENANT, "a", "", tenant="a", by=ITSELF) for _ in range(4)]
    assert outcomes(calls) == ["done"] * 4
    assert len(store.read().suspensions) == 1


def test_doing_nothing_is_not_a_change(store, database):
    """The same body, a resume of what is not suspended, a delete of what is not there."""
    store.create_entry(TENANT, "a", {"weight": 2}, ITSELF)
    assert store.change_entry(TENANT, "a", {"weight": 2}, 1, ITSELF).version == 1
    assert store.resume(Level.TENANT, "a", tenant="a", by=ITSELF) is False
    assert store.delete_entry(TENANT, "nobody", ITSELF) is False
    assert [entry.action for entry in read_audit(database)] == ["tenant.create"]


def test_deleting_takes_the_suspension_with_it(lone_store):
    """A tenant made again under the name starts afresh."""
    lone_store.create_entry(TENANT, "a", {}, ITSELF)
    lone_store.suspend(Level.TENANT, "a", "", tenant="a", by=ITSELF)
    assert lone_store.delete_entry(TENANT, "a", ITSELF) is True
    assert lone_store.read().is_empty
