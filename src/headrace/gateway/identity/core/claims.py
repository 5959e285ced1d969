"""The claims of a token whose signature is good: whether it counts now and here, and whom it names."""

from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from headrace.declaration.identity_plan import ClaimPlan, IssuerPlan
from headrace.domain.errors import ErrorCode, RequestError

SUBJECT_CHARACTERS = 128
"""Longest subject that is kept; OpenID Connect allows 255, and no provider known to us uses half. Chosen."""

Claims = Mapping[str, object]


class VerifiedToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a token once it is believed."""

    issuer: str
    """Declared name of the identity provider."""
    subject: str
    tenant: str
    project: str | None
    request_class: str | None
    expires_at: float
    """UTC epoch seconds, leeway included."""


def read_claims(claims: Claims, issuer: IssuerPlan, now_at: float) -> VerifiedToken:
    """Judge `claims` and say whom they name.

    Raises: RequestError UNAUTHENTICATED where they do not count now or here, FORBIDDEN where they name no tenant.
    """
    expires_at = _check_times(claims, issuer.leeway_s, now_at)
    _check_audience(claims, issuer)
    subject = claims.get(issuer.subject_claim)
    if not isinstance(subject, str) or not subject or len(subject) > SUBJECT_CHARACTERS or not subject.isprintable():
        raise _refused(f"its claim {issuer.subject_claim} must be a text of 1 to {SUBJECT_CHARACTERS} characters")
    tenant = find_meaning(claims, issuer.tenant)
    if tenant is None:
        message = f"the token's claim {issuer.tenant.claim} names no tenant; ask the operator to map it"
        raise RequestError(ErrorCode.FORBIDDEN, message)
    return VerifiedToken(
        issuer=issuer.name,
        subject=subject,
        tenant=tenant,
        project=None if issuer.project is None else find_meaning(claims, issuer.project),
        request_class=None if issuer.request_class is None else find_meaning(claims, issuer.request_class),
        expires_at=expires_at,
    )


def find_meaning(claims: Claims, rule: ClaimPlan) -> str | None:
    """What the rule makes of the claim: the first of its values that means something, else the default."""
    for value in _values_of(claims, rule.claim):
        meaning = rule.values.get(value) if rule.values else value
        if meaning is not None:
            return meaning
    return rule.default


def _check_times(claims: Claims, leeway_s: float, now_at: float) -> float:
    expires_at = _number(claims, "exp")
    if expires_at is None:
        raise _refused("it never expires (no claim exp), and such tokens are not taken")
    if now_at >= expires_at + leeway_s:
        raise _refused(f"it expired {now_at - expires_at:.0f} s ago; ask the identity provider for a fresh one")
    for name in ("nbf", "iat"):
        begins_at = _number(claims, name)
        if begins_at is not None and begins_at > now_at + leeway_s:
            raise _refused(f"its {name} is {begins_at - now_at:.0f} s in the future; check both clocks")
    return expires_at + leeway_s


def _check_audience(claims: Claims, issuer: IssuerPlan) -> None:
    given = claims.get("aud")
    audience = _texts(given)
    if not any(name in issuer.audience for name in audience):
        raise _refused(f"its audience is none of {', '.join(issuer.audience)}")


def _number(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise _refused(f"its claim {name} is no time in seconds")
    return float(value)


def _values_of(claims: Claims, path: str) -> Iterator[str]:
    """Texts of one claim: found under its whole name (`https://x.example/team`) or by the dots in it."""
    found = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = cast("Claims", found).get(part) if isinstance(found, dict) else None
    yield from _texts(found)


def _texts(found: object) -> Iterator[str]:
    """A text, or the texts of a list."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, list):
        yield from (value for value in cast("list[object]", found) if isinstance(value, str))


def _refused(why: str) -> RequestError:
    return RequestError(ErrorCode.UNAUTHENTICATED, f"the token is not accepted: {why}")
