"""The public keys of one issuer, as its JWKS document lists them. Shapes a caller could forge with are left out."""

import warnings
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from headrace.domain.undecodable import UNDECODABLE

PublicKey = RSAKey | ECKey | OKPKey
RSA_BITS = 2048
"""Shortest RSA key that is taken. Source: NIST SP 800-131A."""
KEYS = 100
"""More in one document are not looked at."""

FAMILY: Mapping[str, type[PublicKey]] = {
    "RS": RSAKey,
    "PS": RSAKey,
    "ES": ECKey,
    "Ed": OKPKey,
}
"""Kind of key by the first letters of an algorithm's name."""


class JwksError(Exception):
    """The document holds no key that can be used."""


class PublicKeys:
    """Keys by their ids. Pure."""

    def __init__(self, keys: Mapping[str | None, PublicKey]) -> None:
        self._by_id = dict(keys)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def ids(self) -> frozenset[str | None]:
        return frozenset(self._by_id)

    def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """The key that a token names; without a name, the only one that fits."""
        family = FAMILY.get(algorithm[:2], RSAKey)
        if key_id is not None:
            key = self._by_id.get(key_id)
            return key if isinstance(key, family) else None
        fitting = [key for key in self._by_id.values() if isinstance(key, family)]
        return fitting[0] if len(fitting) == 1 else None


NO_KEYS = PublicKeys({})


def read_jwks(document: bytes) -> PublicKeys:
    """Read a JWKS document; keys of unknown kinds, for encryption, shared secrets or too short are left out.

    Raises: JwksError.
    """
    try:
        decoded = msgspec.json.decode(document, type=_Document)
    except UNDECODABLE as error:
        raise JwksError("it is no JWKS document (an object with a list `keys`)") from error
    found: dict[str | None, PublicKey] = {}
    for entry in decoded.keys[:KEYS]:
        key = _read_key(entry)
        if key is not None:
            found[key.kid] = key
    if not found:
        raise JwksError(f"none of its {len(decoded.keys)} keys can verify a signature")
    return PublicKeys(found)


class _Document(msgspec.Struct, kw_only=True):
    keys: list[dict[str, Any]]


def _read_key(entry: dict[str, Any]) -> PublicKey | None:
    if entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
        return None
    try:
        with warnings.catch_warnings(action="ignore", category=SecurityWarning):  # short keys are judged below
            [key] = KeySet.import_key_set(cast("Any", {"keys": [entry]})).keys
        if isinstance(key, RSAKey) and key.public_key.key_size < RSA_BITS:
            return None
    except (JoseError, ValueError, TypeError, KeyError):
        return None  # one broken key must not take the others away
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None
