"""Fetching an issuer's keys: what is not as it should be brings none, and changes nothing."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tests.harness.identity_provider import IdentityProvider

from headrace.declaration.identity_plan import IdentityPlan, IssuerPlan, compile_identity
from headrace.declaration.identity_section import IdentitySection
from headrace.domain.clock import SystemClock
from headrace.gateway.identity.issuer_watch import IssuerError, IssuerWatch, fetch_jwks
from headrace.gateway.identity.public_keys import JwksError, read_jwks
from headrace.gateway.identity.tokens import TokenDesk


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider() as running:
        yield running


def plan_of(provider: IdentityProvider, **more: object) -> IdentityPlan:
    return compile_identity(IdentitySection.model_validate({"oidc": {"idp": provider.section(**more)}}))


async def fetch(plan: IssuerPlan) -> bytes:
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        return await fetch_jwks(plan, client)


async def test_keys_come_by_discovery_or_from_the_declared_place(provider):
    """With jwks_url declared, nothing else is asked."""
    assert read_jwks(await fetch(plan_of(provider).issuers[0])).ids == {"first"}
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]
    direct = plan_of(provider, jwks_url=f"{provider.url}/keys").issuers[0]
    assert read_jwks(await fetch(direct)).ids == {"first"}
    assert provider.asked[2:] == ["/keys"]


def claim_another(provider: IdentityProvider) -> None:
    provider.claimed_issuer = "https://elsewhere.example"


def fail(provider: IdentityProvider) -> None:
    provider.status = 500


def redirect(provider: IdentityProvider) -> None:
    provider.status = 302


def swell(provider: IdentityProvider) -> None:
    provider.body = b'{"keys": [' + b" " * (2 << 20) + b"]}"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(claim_another, "another issuer"), (fail, "answered 500"), (redirect, "answered 302"), (swell, "longer than")],
)
async def test_what_is_wrong_is_said(provider, spoil: Callable[[IdentityProvider], None], words):
    """The gateway's log names the document and what is wrong with it."""
    spoil(provider)
    with pytest.raises(IssuerError, match=words):
        await fetch(plan_of(provider).issuers[0])


async def test_a_page_that_is_no_jwks_brings_no_key(provider):
    """A sign-in page in the keys' place."""
    provider.body = b"<html>sign in</html>"
    with pytest.raises(JwksError):
        read_jwks(await fetch(plan_of(provider).issuers[0]))


async def test_an_issuer_that_is_not_there_is_named(provider):
    """Nobody listens."""
    await provider.stop()
    with pytest.raises(IssuerError, match=provider.url):
        await fetch(plan_of(provider).issuers[0])


async def test_kept_keys_of_another_issuer_or_broken_ones_are_not_used(provider, tmp_path: Path):
    """What lies in run/ counts only for the issuer it came from."""
    plan = plan_of(provider)
    trusts = {provider.url: ssl.create_default_context()}
    watch = IssuerWatch(TokenDesk(), tmp_path, SystemClock())
    watch.adopt(plan.issuers, trusts)
    await watch.wait_first(30)
    async with asyncio.timeout(30):
        while not list(tmp_path.glob("jwks-*.json")):
            await asyncio.sleep(0.01)
    watch.close()
    await provider.stop()
    [kept] = tmp_path.glob("jwks-*.json")
    whole = kept.read_bytes()
    for content, count in ((whole, 1), (whole.replace(provider.url.encode(), b"http://x"), 0), (whole[:-9], 0)):
        kept.write_bytes(content)
        after = IssuerWatch(TokenDesk(), tmp_path, SystemClock())
        after.adopt(plan.issuers, trusts)
        assert [len(issuer.keys) for issuer in after.issuers] == [count]
        after.close()
    await asyncio.sleep(0)
