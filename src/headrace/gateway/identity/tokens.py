"""Tokens of identity providers: verified once, then recognised by their hash until they expire. No I/O here.

Counterpart: `issuer_watch.py` brings the keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import JoseError

from headrace.declaration.identity_plan import IssuerPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.identity.core.claims import VerifiedToken, read_claims
from headrace.gateway.identity.core.key_refresh import KeyRefresh
from headrace.gateway.identity.public_keys import NO_KEYS, PublicKey, PublicKeys

TOKEN_BYTES = 8192
"""Longest token that is looked at: what one header may be on most servers."""
KNOWN_TOKENS = 20_000
"""Verified tokens remembered; the oldest go first. About 10 MiB."""


@dataclass(slots=True, eq=False)
class Issuer:
    """One identity provider: its rules, its keys, and the tokens of it that were verified."""

    plan: IssuerPlan
    refresh: KeyRefresh
    keys: PublicKeys = NO_KEYS
    fetched: int = 0
    failed: int = 0
    """Looks so far."""
    fetched_at: float | None = None
    """When keys last came, UTC epoch seconds."""
    trouble: str = ""
    """Why the last look brought no keys."""
    wake: Callable[[], None] = lambda: None
    """Lets the watch look now."""


class TokenDesk:
    """Every declared issuer, and the tokens that are known to be good. Concurrency: event loop only."""

    def __init__(self) -> None:
        self._issuers: dict[str, Issuer] = {}
        self._known: dict[bytes, VerifiedToken] = {}

    def adopt(self, issuers: Mapping[str, Issuer]) -> None:
        """Replace the issuers, by their URL; what was verified by other rules is forgotten."""
        self._issuers = dict(issuers)
        self._known.clear()

    def take_keys(self, issuer: Issuer, keys: PublicKeys) -> None:
        """Keys have come; where one is gone, tokens signed by it count no more."""
        if not keys.ids >= issuer.keys.ids:
            self._known.clear()
        issuer.keys = keys

    def read(self, token: bytes, now_at: float) -> VerifiedToken:
        """Return what a token says. Raises: RequestError UNAUTHENTICATED, FORBIDDEN or IDENTITY_UNAVAILABLE."""
        digest = sha256(token).digest()
        known = self._known.get(digest)
        if known is not None:
            if now_at < known.expires_at:
                return known
            del self._known[digest]
        verified = self._verify(token, now_at)
        if len(self._known) >= KNOWN_TOKENS:
            del self._known[next(iter(self._known))]
        self._known[digest] = verified
        return verified

    def find_known(self, token: bytes) -> VerifiedToken | None:
        """What a token says that was found to be good before; nothing is verified."""
        return self._known.get(sha256(token).digest())

    def _verify(self, token: bytes, now_at: float) -> VerifiedToken:
        if len(token) > TOKEN_BYTES:
            raise _refused(f"it has more than {TOKEN_BYTES} bytes")
        try:
            signed = jws.extract_compact(token)
            header = signed.headers()
            claims = msgspec.json.decode(signed.payload, type=dict[str, Any])
        except (JoseError, msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise _refused("it is no signed JWT") from error
        issuer = self._issuers.get(str(claims.get("iss")))
        if issuer is None:
            raise _refused("its issuer is not declared here")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in issuer.plan.algorithms:
            raise _refused(f"its signature must be one of {', '.join(issuer.plan.algorithms)}")
        key = self._get_key(issuer, key_id if isinstance(key_id, str) else None, algorithm)
        if not _is_signed_by(signed, key, algorithm):
            raise _refused("its signature is wrong")
        return read_claims(claims, issuer.plan, now_at)

    def _get_key(self, issuer: Issuer, key_id: str | None, algorithm: str) -> PublicKey:
        now_mono_s = monotonic()
        key = issuer.keys.find(key_id, algorithm) if issuer.refresh.is_usable(now_mono_s) else None
        if key is not None:
            return key
        if key_id is not None and key_id in issuer.keys.ids and issuer.refresh.is_usable(now_mono_s):
            raise _refused("its key is of another kind than its signature")
        is_fresh_look = issuer.refresh.try_hurry(now_mono_s)
        if is_fresh_look:
            issuer.wake()
        if is_fresh_look or issuer.refresh.is_looking or not issuer.refresh.is_usable(now_mono_s):
            message = f"the keys of {issuer.plan.name} that tokens are checked with are not here yet; send it again"
            raise RequestError(ErrorCode.IDENTITY_UNAVAILABLE, message)
        raise _refused(f"{issuer.plan.name} has no key of the name it gives")


def _is_signed_by(signed: jws.CompactSignature, key: PublicKey, algorithm: str) -> bool:
    try:
        return jws.validate_compact(signed, key, [algorithm])
    except (JoseError, ValueError, TypeError):
        return False


def _refused(why: str) -> RequestError:
    return RequestError(ErrorCode.UNAUTHENTICATED, f"the token is not accepted: {why}")
