"""The audit log: in the transaction of the change, append-only, without secrets."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.database.url import DatabaseError
from headrace.domain.admin import ITSELF, Channel, Grant, Role
from headrace.domain.clock import SystemClock
from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.audit import AuditChange, append_audit, changed_fields, read_audit
from headrace.tenancy.key_store import KeyStore

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def either_database(database_url):
    """SQLite, and PostgreSQL."""
    migrate(database_url)
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def database(tmp_path):
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    migrate(url)
    opened = open_database(url)
    yield opened
    opened.close()


def note(database, number: int, tenant: str | None = None, **change: object) -> None:
    with database.writing() as connection:
        made = AuditChange(action="tenant.change", name=f"n{number}", tenant=tenant, **change)
        append_audit(connection, ITSELF, made, AT + timedelta(seconds=number))


def test_entries_are_read_newest_first_and_page_by_page(database):
    """`before_number` reads on where the last answer ended."""
    for number in range(5):
        note(database, number, tenant="a" if number % 2 else "b")
    first = read_audit(database, limit=2)
    assert [entry.name for entry in first] == ["n4", "n3"]
    assert [entry.name for entry in read_audit(database, before_number=first[-1].number)] == ["n2", "n1", "n0"]
    assert [entry.name for entry in read_audit(database, tenant="a")] == ["n3", "n1"]
    assert [entry.name for entry in read_audit(database, since_at=AT.timestamp() + 3)] == ["n4", "n3"]


def test_an_entry_says_who_what_and_from_what_to_what(database):
    """As it was handed over."""
    note(database, 1, tenant="a", before={"weight": 1}, after={"weight": 2})
    [entry] = read_audit(database)
    assert (entry.subject, entry.role, entry.channel) == ("headrace", Role.OWNER, Channel.ITSELF)
    assert (entry.before, entry.after, entry.at) == ({"weight": 1}, {"weight": 2}, AT + timedelta(seconds=1))


@pytest.mark.parametrize("statement", ["UPDATE audit SET name = 'x'", "DELETE FROM audit"])
def test_no_entry_can_be_changed_or_deleted(either_database, statement):
    """The database itself refuses, whoever asks."""
    database = either_database
    note(database, 1)
    with pytest.raises(DatabaseError, match="append-only"), database.writing() as connection:
        connection.execute(text(statement))
    assert len(read_audit(database)) == 1


def test_a_change_that_is_rolled_back_leaves_no_entry(database):
    """Both or neither."""

    def fail_after_noting() -> None:
        with database.writing() as connection:
            append_audit(connection, ITSELF, AuditChange(action="x.y", name="n", tenant=None), AT)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_noting()
    assert read_audit(database) == ()


def test_fields_that_hold_secrets_are_never_stored(database):
    """Whoever hands them over, and however deep."""
    note(database, 1, after={"key": "canary-1", "deep": [{"password": "canary-2", "name": "kept"}]})
    [entry] = read_audit(database)
    assert entry.after == {"deep": [{"name": "kept"}]}


def test_a_keys_life_is_in_the_log_without_its_secret(database):
    """Created, changed, suspended, resumed, revoked; doing nothing twice is noted once."""
    keys = KeyStore(database, SystemClock())
    clear_text, record = keys.create_key(tenant=TenantId("a"), scope=Scope.INFERENCE)
    for _ in range(2):
        keys.suspend_key(record.key_id)
    for _ in range(2):
        keys.resume_key(record.key_id)
    keys.expire_key(record.key_id, AT)
    for _ in range(2):
        keys.revoke_key(record.key_id)
    entries = read_audit(database)
    assert [entry.action for entry in reversed(entries)] == [
        "key.create",
        "key.suspend",
        "key.resume",
        "key.change",
        "key.revoke",
    ]
    assert {entry.name for entry in entries} == {record.key_id}
    assert not any(clear_text[14:] in repr(entry) or "sha256" in repr(entry) for entry in entries)


def test_what_happens_to_an_operators_key_is_shown_to_those_it_reaches(database):
    """The life of a key that reaches everywhere is no business of the tenant it was made under."""
    keys = KeyStore(database, SystemClock())
    for grant in (Grant(role=Role.OWNER), Grant(role=Role.VIEWER, tenant=TenantId("a"))):
        _, record = keys.create_key(tenant=TenantId("a"), scope=Scope.ADMIN, grant=grant)
        keys.suspend_key(record.key_id)
        keys.revoke_key(record.key_id)
        assert {entry.tenant for entry in read_audit(database, limit=3)} == {grant.tenant}
        assert read_audit(database)[0].after["grant"]["role"] == grant.role.value


def test_differences_are_said_field_by_field():
    """What a person wants to read."""
    before = {"weight": 1, "limits": {"a": 1, "b": 2}}
    after = {"weight": 1, "limits": {"a": 3}, "models": ["m"]}
    assert list(changed_fields(before, after)) == ["limits.a: 1 -> 3", "limits.b: 2 -> none", 'models: none -> ["m"]']
    assert list(changed_fields(before, before)) == []
