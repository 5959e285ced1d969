"""Whatever bytes come as a credential, the ring answers with the right key or none, and never raises."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.keys import KeyRing, generate_key

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_KEYS = [generate_key(tenant=TenantId(f"t{n}"), scope=Scope.INFERENCE, created_at=_NOW) for n in range(20)]
_RING = KeyRing(record for _, record in _KEYS)


@given(st.binary(max_size=80))
def test_noise_is_no_key(token):
    """Random bytes are refused."""
    assert _RING.find(token, _NOW.timestamp()) is None


@given(st.integers(0, 19), st.integers(0, 56), st.integers(1, 255))
def test_one_changed_byte_makes_a_key_unknown(number, at, change):
    """No byte of a key is ignored."""
    token = bytearray(_KEYS[number][0].encode())
    assert _RING.find(bytes(token), _NOW.timestamp()) is _KEYS[number][1]
    token[at] ^= change
    assert _RING.find(bytes(token), _NOW.timestamp()) is None


@given(st.integers(0, 19), st.integers(0, 19))
def test_ids_and_secrets_do_not_mix(one, other):
    """A known id with another key's secret is refused."""
    id_of_one, secret_of_other = _KEYS[one][0][:14], _KEYS[other][0][14:]
    found = _RING.find((id_of_one + secret_of_other).encode(), _NOW.timestamp())
    assert found is (_KEYS[one][1] if one == other else None)
