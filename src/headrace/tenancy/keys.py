"""API keys: how they are made, what they look like, and how the gateway recognises one without any I/O."""

import base64
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest

from headrace.domain.ids import KeyId, TenantId
from headrace.domain.quota import NO_LIMITS, LimitSet
from headrace.domain.tenant import KeyRecord, Scope

KEY_PATTERN = re.compile(r"hr-(?P<key_id>[a-z2-7]{10})-(?P<secret>[A-Za-z0-9_-]{43})")
"""A whole key: a public id of 50 random bits in base32, then 32 random bytes in URL-safe base64."""

KEY_LENGTH = 57
"""len("hr-") + 10 + len("-") + 43."""

_ID_BYTES = 7  # 56 bits, of which the first 50 make ten base32 characters
_ID_START, _ID_END = 3, 13
_ABSENT: tuple[bytes, float, KeyRecord | None] = (bytes(32), 0.0, None)
_FOREVER_AT = float("inf")


def hide_secrets(text: str) -> str:
    """`text` with the secret of every whole key in it left out: people paste keys where they do not belong."""
    return KEY_PATTERN.sub(r"hr-\g<key_id>-(hidden)", text)


def generate_key(
    *,
    tenant: TenantId,
    scope: Scope,
    created_at: datetime,
    name: str = "",
    allowed_models: tuple[str, ...] | None = None,
    expires_at: datetime | None = None,
    project: str | None = None,
    limits: LimitSet = NO_LIMITS,
) -> tuple[str, KeyRecord]:
    """Make a key: its clear text, to be shown once and kept nowhere, and the record to store."""
    key_id = base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode("ascii").lower()[:10]
    clear_text = f"hr-{key_id}-{secrets.token_urlsafe(32)}"
    return clear_text, KeyRecord(
        key_id=KeyId(key_id),
        secret_sha256=sha256(clear_text.encode("ascii")).digest(),
        tenant=tenant,
        scope=scope,
        name=name,
        allowed_models=allowed_models,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=None,
        project=project,
        limits=limits,
    )


class KeyRing:
    """An immutable set of keys for the hot path: replace the whole ring when keys change.

    Concurrency: pure; safe to share.
    """

    __slots__ = ("_by_id", "_revoked")

    def __init__(self, records: Iterable[KeyRecord] = ()) -> None:
        given = tuple(records)
        self._by_id: dict[bytes, tuple[bytes, float, KeyRecord | None]] = {
            record.key_id.encode("ascii"): (
                record.secret_sha256,
                record.expires_at.timestamp() if record.expires_at else _FOREVER_AT,
                record,
            )
            for record in given
            if record.revoked_at is None
        }
        self._revoked = {record.key_id.encode("ascii"): record for record in given if record.revoked_at is not None}

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"KeyRing({len(self._by_id)} keys)"

    def find_by_id(self, key_id: str, now_at: float) -> KeyRecord | None:
        """The key of this id, for work that its holder has left with us; None where it no longer counts."""
        _, expires_at, record = self._by_id.get(key_id.encode("ascii", "replace"), _ABSENT)
        return record if now_at < expires_at else None

    def find(self, token: bytes, now_at: float) -> KeyRecord | None:
        """The key that `token` is, unless it is unknown, revoked or expired at `now_at` (UTC epoch seconds).

        An unknown id is hashed and compared like a known one, so that the answer's time tells nothing about ids.
        """
        digest, expires_at, record = self._by_id.get(token[_ID_START:_ID_END], _ABSENT)
        if compare_digest(sha256(token).digest(), digest) and now_at < expires_at:
            return record
        return None

    def find_holder(self, token: bytes) -> KeyRecord | None:
        """The key that `token` is or was: an expired or revoked one, too, to say whose it is. It opens nothing."""
        key_id = token[_ID_START:_ID_END]
        digest, _, record = self._by_id.get(key_id, _ABSENT)
        revoked = self._revoked.get(key_id)
        if revoked is not None:
            digest, record = revoked.secret_sha256, revoked
        return record if compare_digest(sha256(token).digest(), digest) else None
