"""Tokens are verified once, recognised until they expire, and forgotten with the key that signed them."""

import json
from datetime import UTC, datetime
from time import monotonic

import pytest
from tests.harness.identity_provider import IdentityProvider, SigningKey, rsa_key

from headrace.declaration.identity_plan import compile_identity
from headrace.declaration.identity_section import IdentitySection
from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.identity import tokens
from headrace.gateway.identity.core.key_refresh import KeyRefresh
from headrace.gateway.identity.public_keys import PublicKeys, read_jwks
from headrace.gateway.identity.tokens import Issuer, TokenDesk

NOW_AT = datetime.now(tz=UTC).timestamp()


def public(*keys: SigningKey) -> PublicKeys:
    return read_jwks(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode())


class Scene:
    """A desk that believes one issuer, whose keys were fetched a moment ago."""

    def __init__(self) -> None:
        self.provider = IdentityProvider()
        section = IdentitySection.model_validate({"oidc": {"corporate": self.provider.section()}})
        [plan] = compile_identity(section).issuers
        self.issuer = Issuer(plan=plan, refresh=KeyRefresh(refresh_s=300, keep_s=3600))
        self.issuer.refresh.note_fetched(monotonic())
        self.woken = 0
        self.issuer.wake = self.wake
        self.desk = TokenDesk()
        self.desk.adopt({plan.issuer: self.issuer})
        self.desk.take_keys(self.issuer, public(*self.provider.keys))

    def wake(self) -> None:
        self.woken += 1

    def code(self, token: str, now_at: float = NOW_AT) -> ErrorCode | None:
        try:
            self.desk.read(token.encode(), now_at)
        except RequestError as error:
            return error.code
        return None


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_known_token_needs_no_key_until_it_expires(scene):
    """Verified once: without any key it is still recognised, and at its end it is not."""
    token = scene.provider.token(exp=int(NOW_AT) + 60)
    first = scene.desk.read(token.encode(), NOW_AT)
    scene.issuer.keys = public(rsa_key("another"))
    assert scene.desk.read(token.encode(), NOW_AT + 80) is first
    assert scene.code(token, NOW_AT + 91) is not None


def test_a_fresh_key_changes_nothing_and_a_gone_one_ends_its_tokens(scene):
    """A rotation that overlaps is not noticed; a key that was withdrawn counts no more."""
    old, token = scene.provider.keys[0], scene.provider.token()
    known = scene.desk.read(token.encode(), NOW_AT)
    fresh = rsa_key("second")
    scene.desk.take_keys(scene.issuer, public(old, fresh))
    assert scene.desk.read(token.encode(), NOW_AT) is known
    assert scene.code(scene.provider.token(key=fresh)) is None
    scene.desk.take_keys(scene.issuer, public(fresh))
    assert scene.code(token) in (ErrorCode.UNAUTHENTICATED, ErrorCode.IDENTITY_UNAVAILABLE)


def test_an_unknown_key_wakes_the_watch_once_in_a_while(scene):
    """The first token waits for the look, strangers after it are refused."""
    stranger = scene.provider.token(key=rsa_key("stranger"))
    assert scene.code(stranger) is ErrorCode.IDENTITY_UNAVAILABLE
    scene.issuer.refresh.note_fetched(monotonic())
    assert scene.code(stranger) is ErrorCode.UNAUTHENTICATED
    assert scene.woken == 1


def test_keys_that_are_too_old_verify_nothing(scene):
    """After keep_s without the issuer its tokens wait for it."""
    scene.issuer.refresh.note_fetched(monotonic(), age_s=3601)
    assert scene.code(scene.provider.token()) is ErrorCode.IDENTITY_UNAVAILABLE


def test_the_oldest_known_tokens_make_room(scene, monkeypatch):
    """However many tokens come, so many are remembered; the others are verified again."""
    monkeypatch.setattr(tokens, "KNOWN_TOKENS", 3)
    made = [scene.provider.token(sub=f"user-{number}").encode() for number in range(5)]
    first = [scene.desk.read(token, NOW_AT) for token in made]
    again = [scene.desk.read(token, NOW_AT) is before for token, before in zip(made[2:], first[2:], strict=True)]
    assert again == [True, True, True]
    assert scene.desk.read(made[0], NOW_AT) is not first[0]


def test_a_token_is_looked_at_up_to_its_bound(scene, monkeypatch):
    """The bound itself is allowed, one byte more is not."""
    token = scene.provider.token()
    monkeypatch.setattr(tokens, "TOKEN_BYTES", len(token) - 1)
    assert scene.code(token) is ErrorCode.UNAUTHENTICATED
    monkeypatch.setattr(tokens, "TOKEN_BYTES", len(token))
    assert scene.code(token) is None
