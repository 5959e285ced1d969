"""Keys in the database: created, listed, ended, and each change seen by pollers."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.domain.admin import OWNER_OF_ALL
from headrace.domain.clock import SystemClock
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.key_store import KeyNotFoundError, KeyStore
from headrace.tenancy.keys import KeyRing

TEAM = TenantId("team-a")


@pytest.fixture
def store(database_url):
    migrate(database_url)
    database = open_database(database_url)
    yield KeyStore(database, SystemClock())
    database.close()


def test_a_created_key_is_stored_as_it_was_returned(store):
    """What `keys create` shows is what the gateway will know."""
    expires_at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    clear_text, record = store.create_key(
        tenant=TEAM, scope=Scope.ADMIN, name="ci", allowed_models=("m", "n"), expires_at=expires_at
    )
    (listed,) = store.list_keys()
    assert listed == record == store.get_key(record.key_id)
    now_at = datetime.now(tz=UTC).timestamp()
    found = KeyRing(store.list_usable_keys()).find(clear_text.encode(), now_at)
    assert found == msgspec.structs.replace(record, grant=OWNER_OF_ALL)


def test_every_change_raises_the_version(store):
    """A poller sees creation, revocation and expiry by one number."""
    versions = [store.read_version()]
    _, record = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    versions.append(store.read_version())
    store.expire_key(record.key_id, datetime.now(tz=UTC))
    versions.append(store.read_version())
    store.revoke_key(record.key_id)
    versions.append(store.read_version())
    assert versions == [0, 1, 2, 3]


def test_a_revoked_key_is_listed_and_not_usable(store):
    """What was once given out stays on record; revoking again keeps the first time."""
    _, record = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    first = store.revoke_key(record.key_id)
    again = store.revoke_key(record.key_id)
    assert first.revoked_at is not None
    assert again.revoked_at == first.revoked_at
    assert [key.key_id for key in store.list_keys()] == [record.key_id]
    assert store.list_usable_keys() == ()


def test_an_expired_key_is_not_usable_and_may_be_prolonged(store):
    """Expiry is a setting, not an end for ever."""
    past = datetime.now(tz=UTC) - timedelta(seconds=1)
    _, record = store.create_key(tenant=TEAM, scope=Scope.INFERENCE, expires_at=past)
    assert store.list_usable_keys() == ()
    assert store.expire_key(record.key_id, None).expires_at is None
    assert [key.key_id for key in store.list_usable_keys()] == [record.key_id]


def test_keys_are_listed_by_tenant(store):
    """One team's keys can be looked at alone."""
    _, mine = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    store.create_key(tenant=TenantId("team-b"), scope=Scope.INFERENCE)
    assert [key.key_id for key in store.list_keys(tenant=TEAM)] == [mine.key_id]


def test_an_unknown_id_is_named_with_the_nearest(store):
    """A slip of the finger is answered with what was meant."""
    _, record = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    wrong = KeyId(record.key_id[:-1] + ("a" if record.key_id[-1] != "a" else "b"))
    with pytest.raises(KeyNotFoundError) as caught:
        store.revoke_key(wrong)
    assert (f'"{wrong}"' in caught.value.message, caught.value.hint) == (True, f'Did you mean "{record.key_id}"?')
    assert store.read_version() == 1


def test_a_whole_key_given_as_an_id_is_not_repeated(store):
    """An error message never holds a secret, even when the operator pasted one."""
    clear_text, record = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    with pytest.raises(KeyNotFoundError) as caught:
        store.revoke_key(KeyId(clear_text))
    assert clear_text[14:] not in str(caught.value)
    assert caught.value.hint == f'Did you mean "{record.key_id}"?'


def test_a_key_that_ended_lately_is_recognised_and_opens_nothing(store):
    """Whoever goes on sending a revoked or expired key is known by it; without its secret nobody is."""
    past = datetime.now(tz=UTC) - timedelta(days=1)
    revoked_text, revoked = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    store.revoke_key(revoked.key_id)
    expired_text, expired = store.create_key(tenant=TEAM, scope=Scope.INFERENCE, expires_at=past)
    old_text, _ = store.create_key(tenant=TEAM, scope=Scope.INFERENCE, expires_at=past - timedelta(days=60))
    good_text, good = store.create_key(tenant=TEAM, scope=Scope.INFERENCE)
    ring, now_at = KeyRing(store.list_known_keys()), datetime.now(tz=UTC).timestamp()
    for text, record in ((revoked_text, revoked), (expired_text, expired)):
        assert ring.find(text.encode(), now_at) is None
        assert ring.find_by_id(record.key_id, now_at) is None
        holder = ring.find_holder(text.encode())
        assert holder is not None
        assert holder.key_id == record.key_id
        assert ring.find_holder(text[:-1].encode() + b"~") is None
    assert ring.find_holder(old_text.encode()) is None
    found = ring.find(good_text.encode(), now_at)
    assert found is not None
    assert found.key_id == good.key_id
