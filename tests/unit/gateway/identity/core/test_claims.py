"""Claims: whether a token counts now and here, and whom it names."""

import pytest

from headrace.declaration.identity_plan import ClaimPlan, IssuerPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.identity.core.claims import find_meaning, read_claims

NOW_AT = 1_000_000.0
GOOD = {"aud": "headrace", "sub": "ada", "team": "team-a", "exp": NOW_AT + 60}


def issuer(**changes: object) -> IssuerPlan:
    plan: dict[str, object] = {
        "name": "corporate",
        "issuer": "https://idp.example",
        "audience": ("headrace",),
        "jwks_url": None,
        "algorithms": ("RS256",),
        "leeway_s": 30.0,
        "refresh_s": 300.0,
        "keep_s": 3600.0,
        "ca": None,
        "subject_claim": "sub",
        "tenant": ClaimPlan(claim="team", values={}, default=None),
        "project": None,
        "request_class": None,
    }
    return IssuerPlan(**{**plan, **changes})  # type: ignore[arg-type]


def refusal(claims: dict[str, object], **changes: object) -> tuple[ErrorCode, str]:
    with pytest.raises(RequestError) as caught:
        read_claims(claims, issuer(**changes), NOW_AT)
    return caught.value.code, caught.value.message


def test_a_good_token_names_its_subject_and_tenant():
    """What ledger and quota will see."""
    verified = read_claims(GOOD, issuer(), NOW_AT)
    assert (verified.subject, verified.tenant, verified.project) == ("ada", "team-a", None)
    assert verified.expires_at == NOW_AT + 90


@pytest.mark.parametrize(("age_s", "is_good"), [(-1, True), (0, True), (29, True), (30, False), (31, False)])
def test_an_expired_token_counts_only_within_the_leeway(age_s, is_good):
    """Clocks differ a little; a minute is not a little."""
    claims = {**GOOD, "exp": NOW_AT - age_s}
    if is_good:
        assert read_claims(claims, issuer(), NOW_AT).expires_at > NOW_AT
    else:
        assert refusal(claims)[0] is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["nbf", "iat"])
def test_a_token_of_the_future_is_refused(name):
    """Within the leeway it counts, beyond it the message names the clock."""
    assert read_claims({**GOOD, name: NOW_AT + 30}, issuer(), NOW_AT)
    assert "in the future" in refusal({**GOOD, name: NOW_AT + 31})[1]


@pytest.mark.parametrize("expiry", [None, "soon", True, -1, 1e300])
def test_a_token_without_a_sound_expiry_is_refused(expiry):
    """A token for ever is a password."""
    assert refusal({**GOOD, "exp": expiry})[0] is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("audience", "is_good"),
    [
        ("headrace", True),
        (["other", "headrace"], True),
        ("other", False),
        ([], False),
        (None, False),
        (7, False),
        ({"headrace": 1}, False),
        ("headrace ", False),
    ],
)
def test_a_token_for_somebody_else_is_refused(audience, is_good):
    """A token given to another service must not open this one."""
    claims = {**GOOD, "aud": audience}
    if is_good:
        assert read_claims(claims, issuer(), NOW_AT)
    else:
        assert "audience is none of headrace" in refusal(claims)[1]


@pytest.mark.parametrize("subject", [None, "", 7, "x" * 129, "a\nb"])
def test_a_token_without_a_subject_is_refused(subject):
    """The ledger must be able to say who it was."""
    assert "claim sub" in refusal({**GOOD, "sub": subject})[1]


MAPPED = ClaimPlan(claim="groups", values={"/ml/search": "search", "/ml/ads": "ads"}, default=None)


@pytest.mark.parametrize(
    ("claims", "rule", "meaning"),
    [
        ({"groups": ["/all", "/ml/ads", "/ml/search"]}, MAPPED, "ads"),
        ({"groups": "/ml/search"}, MAPPED, "search"),
        ({"groups": ["/all"]}, MAPPED, None),
        ({}, MAPPED, None),
        ({"groups": [1, None, {"a": 1}]}, MAPPED, None),
        ({"a": {"b": "t"}}, ClaimPlan(claim="a.b", values={}, default=None), "t"),
        ({"a.b": "whole"}, ClaimPlan(claim="a.b", values={}, default=None), "whole"),
        ({"a": "b"}, ClaimPlan(claim="a.b", values={}, default="fallback"), "fallback"),
        ({"groups": "/other"}, ClaimPlan(claim="groups", values={"/x": "y"}, default="rest"), "rest"),
    ],
)
def test_a_claim_means_what_the_rule_says(claims, rule, meaning):
    """The first value that means something counts; else the default."""
    assert find_meaning(claims, rule) == meaning


def test_a_token_that_names_no_tenant_is_forbidden_by_the_claims_name():
    """The caller is known, but nobody has said where it belongs."""
    code, message = refusal({**GOOD, "team": None})
    assert (code, "claim team names no tenant" in message) == (ErrorCode.FORBIDDEN, True)
