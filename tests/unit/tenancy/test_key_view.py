"""Keys as shown: their state, and nothing of their secret."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.key_view import KeyState, view_key
from headrace.tenancy.keys import generate_key

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "state"),
    [
        (None, None, KeyState.ACTIVE),
        (NOW + SECOND, None, KeyState.ACTIVE),
        (NOW, None, KeyState.EXPIRED),
        (NOW - SECOND, None, KeyState.EXPIRED),
        (None, NOW, KeyState.REVOKED),
        (NOW - SECOND, NOW, KeyState.REVOKED),
    ],
)
def test_the_state_is_that_of_the_moment(expires_at, revoked_at, state):
    """Expiry includes its moment; revoked counts before expired."""
    _, record = generate_key(tenant=TenantId("t"), scope=Scope.ADMIN, created_at=NOW, expires_at=expires_at)
    record = msgspec.structs.replace(record, revoked_at=revoked_at)
    assert view_key(record, NOW).state is state


def test_a_shown_key_has_no_secret_in_it():
    """Neither the text nor its hash."""
    clear_text, record = generate_key(tenant=TenantId("t"), scope=Scope.ADMIN, created_at=NOW)
    shown = msgspec.json.encode(view_key(record, NOW))
    assert clear_text[14:].encode() not in shown
    assert b"sha256" not in shown
