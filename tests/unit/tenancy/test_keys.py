"""API keys: their shape, and that a ring knows exactly its own."""

import hashlib
from datetime import UTC, datetime, timedelta

import msgspec

from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.keys import KEY_LENGTH, KEY_PATTERN, KeyRing, generate_key

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_AT = NOW.timestamp()


def _key(**fields):
    given = {"tenant": TenantId("team-a"), "scope": Scope.INFERENCE, "created_at": NOW, **fields}
    return generate_key(**given)


def test_a_key_has_its_id_in_front_and_its_hash_in_the_record():
    """What is stored cannot be used to call."""
    clear_text, record = _key()
    shape = KEY_PATTERN.fullmatch(clear_text)
    assert shape is not None
    assert (shape["key_id"], len(clear_text)) == (record.key_id, KEY_LENGTH)
    assert record.secret_sha256 == hashlib.sha256(clear_text.encode()).digest()
    assert shape["secret"] not in repr(record)


def test_a_thousand_keys_are_a_thousand_ids():
    """Ids do not collide in practice."""
    assert len({_key()[1].key_id for _ in range(1000)}) == 1000


def test_a_ring_finds_its_keys_and_nothing_else():
    """The right key is found; a changed, cut or foreign one is not."""
    clear_text, record = _key()
    ring = KeyRing([record, _key()[1]])
    token = clear_text.encode()
    assert ring.find(token, NOW_AT) is record
    for wrong in (token[:-1] + b"!", token[:-1], token + b"A", b"", b"hr-", _key()[0].encode(), b"hr-" + token[3:13]):
        assert ring.find(wrong, NOW_AT) is None


def test_expired_and_revoked_keys_are_unknown():
    """A key ends at its moment, not after it."""
    clear_text, record = _key(expires_at=NOW + timedelta(seconds=10))
    ring = KeyRing([record])
    assert ring.find(clear_text.encode(), NOW_AT + 9.9) is record
    assert ring.find(clear_text.encode(), NOW_AT + 10) is None
    revoked = msgspec.structs.replace(record, revoked_at=NOW)
    assert KeyRing([revoked]).find(clear_text.encode(), NOW_AT) is None


def test_an_empty_ring_knows_no_key():
    """No keys means nobody may call, not everybody."""
    ring = KeyRing()
    assert len(ring) == 0
    for token in (b"", b"hr-", bytes(57), _key()[0].encode()):
        assert ring.find(token, NOW_AT) is None
