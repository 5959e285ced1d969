"""Callers with tokens of an identity provider, and callers that a gateway in front has named."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jws
from joserfc.jwk import ECKey, OctKey
from openai import AsyncOpenAI
from tests.harness.identity_provider import IdentityProvider, rsa_key
from tests.harness.journal_records import records_of
from tests.harness.polling import until
from tests.harness.raw_client import RawAnswer, ask, chat, get, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

DEADLINE_S = 30.0
TENANTS: dict[str, Any] = {
    "default": {},
    "search": {"projects": {"web": {}, "lab": {"suspended": True}}},
    "closed": {"suspended": True},
}


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider() as running:
        yield running


def declared(engine: ScriptedEngine, provider: IdentityProvider, **more: Any):
    oidc = {"corporate": provider.section(**more)}
    return declare({"p": remote_pool(engine.url)}, tenants=TENANTS, identity={"oidc": oidc})


@pytest_asyncio.fixture
async def gateway(engine: ScriptedEngine, provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    project = {"claim": "project"}
    async with RunningGateway(tmp_path, declared(engine, provider, project=project, refresh_s=3600)) as running:
        await running.wait_ready()
        yield running


async def call(gateway: RunningGateway, token: str | None, **headers: str) -> RawAnswer:
    return await ask(gateway.port, post(chat(), token, **headers))


def unsigned(header: dict[str, Any], claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    return ".".join((*parts, ""))


async def test_a_token_calls_for_the_tenant_it_names(gateway: RunningGateway, provider: IdentityProvider) -> None:
    """Tokens and keys work side by side; the ledger names the token's subject and tenant.

    No request waits for the identity provider: its keys were fetched before the first caller came, and metrics say so.
    """
    before = len(provider.asked)
    assert (await call(gateway, provider.token(team="search", project="web"))).status == 200
    assert (await call(gateway, gateway.key)).status == 200
    tokens = [provider.token(sub=f"user-{number}") for number in range(5)]
    answers = await asyncio.gather(*(call(gateway, token) for token in tokens * 4))
    assert {answer.status for answer in answers} == {200}
    assert provider.asked[before:] == []
    assert await gateway.metric('headrace_identity_key_fetches_total{issuer="corporate",result="fetched"}') == 1
    fetched_at = await gateway.metric('headrace_identity_keys_time_seconds{issuer="corporate"}')
    assert fetched_at is not None
    assert abs(fetched_at - datetime.now(tz=UTC).timestamp()) < 600
    await gateway.wait_idle()
    await gateway.stop()
    seen = {(one["tenant"], one["key_id"]) for one in records_of(gateway.settings.journal_dir)}
    assert ("search", "corporate:ada") in seen


def forged(provider: IdentityProvider) -> dict[str, str]:
    """Tokens that somebody without the issuer's private key could make, or that are not meant for us now."""
    now_at = int(datetime.now(tz=UTC).timestamp())
    claims = {"iss": provider.url, "aud": "headrace", "sub": "ada", "team": "default", "exp": now_at + 60}
    public = provider.keys[0]
    pem = public.raw_value.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[union-attr]
    shared = OctKey.import_key(base64.urlsafe_b64encode(pem).decode())
    good = provider.token()
    head, payload, signature = good.split(".")
    other = unsigned({}, {**claims, "team": "search"}).split(".")[1]
    return {
        "another key under the same id": provider.token(key=rsa_key("first")),
        "alg none": unsigned({"alg": "none"}, claims),
        "alg NONE with a kid": unsigned({"alg": "NONE", "kid": "first"}, claims),
        "HS256 with the public key": jws.serialize_compact(
            {"alg": "HS256", "kid": "first"}, json.dumps(claims), shared, ["HS256"]
        ),
        "ES256 for an RSA key": provider.token(key=ECKey.generate_key("P-256", {"kid": "first"})),
        "wrong audience": provider.token(aud="somebody-else"),
        "no audience": provider.token(aud=None),
        "wrong issuer": provider.token(iss="https://elsewhere.example"),
        "no issuer": provider.token(iss=None),
        "expired": provider.token(exp=now_at - 31),
        "never expires": provider.token(exp=None),
        "not yet": provider.token(nbf=now_at + 120),
        "no subject": provider.token(sub=None),
        "critical header": provider.token(header={"crit": ["b64"], "b64": False}),
        "payload exchanged": f"{head}.{other}.{signature}",
        "no signature": f"{head}.{payload}.",
        "two parts": f"{head}.{payload}",
        "four parts": f"{good}.{signature}",
        "claims are a list": unsigned({"alg": "RS256", "kid": "first"}, [claims]) + signature,
        "deeply nested": "eyJ" + "." + base64.urlsafe_b64encode(b"[" * 4000).decode() + ".AAAA",
        "only a beginning": "eyJ",
        "huge": provider.token(padding="x" * 9000),
    }


async def test_forged_and_foreign_tokens_are_refused(
    gateway: RunningGateway, engine: ScriptedEngine, provider: IdentityProvider
) -> None:
    """Each is 401 in the one table's shape and reaches no engine; no token, good or bad, is written down anywhere."""
    tokens, good = forged(provider), provider.token()
    for name, token in tokens.items():
        answer = await call(gateway, token)
        assert (answer.status, answer.code) == (401, "unauthenticated"), (name, answer.body)
        assert len(token) < 40 or token[:40].encode() not in answer.body, name
    assert engine.seen == []
    assert (await call(gateway, good)).status == 200
    await gateway.wait_idle()
    sinks = [(await gateway.metrics()).encode(), repr(engine.seen).encode()]
    await gateway.stop()
    sinks += [path.read_bytes() for path in gateway.settings.state_dir.rglob("*") if path.is_file()]
    for token in (good, *tokens.values()):
        for part in token.split(".")[1:]:
            assert len(part) < 16 or not any(part.encode() in content for content in sinks)


async def test_a_tenant_that_is_unknown_or_suspended_is_refused_by_name(
    gateway: RunningGateway, provider: IdentityProvider
) -> None:
    """The token is good; what it names may not call."""
    answers = {
        name: await call(gateway, provider.token(**claims))
        for name, claims in {
            "unknown": {"team": "nobody"},
            "none": {"team": None},
            "suspended": {"team": "closed"},
            "project": {"team": "search", "project": "lab"},
            "no project": {"team": "search", "project": "other"},
        }.items()
    }
    assert {name: (answer.status, answer.code) for name, answer in answers.items()} == {
        "unknown": (403, "forbidden"),
        "none": (403, "forbidden"),
        "suspended": (403, "suspended"),
        "project": (403, "suspended"),
        "no project": (403, "forbidden"),
    }
    assert b"'closed' is suspended" in answers["suspended"].body


async def test_a_rotated_key_is_fetched_when_a_token_names_it(
    gateway: RunningGateway, provider: IdentityProvider
) -> None:
    """The first token of the fresh key is asked to come again in a moment; the old key's tokens count no more."""
    old = provider.token()
    assert (await call(gateway, old)).status == 200
    provider.rotate("second")
    token = provider.token()
    first = await call(gateway, token)
    assert (first.status, first.code, first.headers["retry-after"]) == (503, "identity_unavailable", "1")

    async def is_taken() -> bool:
        return (await call(gateway, token)).status == 200

    await until(is_taken)
    answer = await call(gateway, old)
    assert (answer.status, answer.code) == (401, "unauthenticated")


async def test_a_rotation_is_not_noticed_by_openais_client(gateway: RunningGateway, provider: IdentityProvider) -> None:
    """It follows `Retry-After` by itself, and the fresh key is here by then."""
    provider.rotate("second")
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=provider.token(), max_retries=5) as client:
        answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content


async def test_made_up_key_ids_do_not_become_a_flood_at_the_issuer(
    gateway: RunningGateway, provider: IdentityProvider
) -> None:
    """However many strangers invent key ids, the issuer is asked once, and afterwards they get 401."""
    before = len(provider.asked)
    stranger = rsa_key("stranger")
    tokens = [provider.token(key=stranger, header={"kid": f"made-up-{number}"}) for number in range(40)]
    answers = await asyncio.gather(*(call(gateway, token) for token in tokens))
    assert {answer.status for answer in answers} <= {401, 503}

    async def is_refused() -> bool:
        return (await call(gateway, tokens[0])).status == 401

    await until(is_refused)
    assert len([path for path in provider.asked[before:] if path == "/keys"]) <= 2


async def test_while_the_issuer_is_down_its_last_keys_count_even_over_a_restart(
    gateway: RunningGateway, provider: IdentityProvider
) -> None:
    """An identity provider's outage is not an outage of inference."""
    await provider.stop()
    assert (await call(gateway, provider.token(sub="while-down"))).status == 200
    await gateway.stop()
    await gateway.start()
    await gateway.wait_ready()
    assert (await call(gateway, provider.token(sub="after-restart"))).status == 200
    assert (await call(gateway, gateway.key)).status == 200


@pytest.mark.parametrize("trouble", ["down", "slow"])
async def test_an_issuer_in_trouble_from_the_start_keeps_nobody_else_waiting(
    trouble: str, engine: ScriptedEngine, provider: IdentityProvider, tmp_path: Path
) -> None:
    """Keys work, tokens are asked to come again, and once the issuer is well its tokens are taken."""
    token = provider.token()
    if trouble == "down":
        await provider.stop()
    else:
        provider.delay_s = 60.0
    async with RunningGateway(tmp_path, declared(engine, provider, refresh_s=1)) as gateway:
        await gateway.wait_ready()
        assert (await call(gateway, gateway.key)).status == 200
        answer = await call(gateway, token)
        assert (answer.status, answer.code) == (503, "identity_unavailable")
        provider.delay_s = 0.0
        if trouble == "down":
            await provider.start()

        async def is_taken() -> bool:
            return (await call(gateway, token)).status == 200

        await until(is_taken)


async def test_a_reload_changes_the_rules_for_tokens(
    gateway: RunningGateway, engine: ScriptedEngine, provider: IdentityProvider
) -> None:
    """Another audience, or no issuer any more: what was verified before counts no longer.

    A plan that cannot be carried out, for a file that cannot be read, changes nothing.
    """
    token = provider.token()
    assert (await call(gateway, token)).status == 200
    reply = await gateway.configure(declared(engine, provider, ca="/nowhere/ca.pem"))
    assert (reply.ok, "identity.oidc" in reply.message) == (False, True)
    assert (await call(gateway, token)).status == 200
    assert (await gateway.configure(declared(engine, provider, audience=["other"]))).ok
    assert (await call(gateway, token)).status == 401
    assert (await call(gateway, provider.token(aud="other"))).status == 200
    assert (await gateway.configure(declare({"p": remote_pool(engine.url)}, tenants=TENANTS))).ok
    answer = await call(gateway, provider.token(aud="other"))
    assert (answer.status, answer.code) == (401, "unauthenticated")


async def test_headers_of_a_gateway_in_front_count_from_its_address_alone(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """From elsewhere they are as good as not there; given twice, from the right address, they are refused."""

    def trusting(address: str):
        identity = {"trusted_headers": {"addresses": [address]}}
        return declare({"p": remote_pool(engine.url)}, tenants=TENANTS, identity=identity)

    named = {"x_headrace_tenant": "search", "x_headrace_project": "web", "x_headrace_subject": "ada"}
    twice = get("/v1/models", None, x_headrace_tenant="search")[:-2] + b"X-Headrace-Tenant: default\r\n\r\n"
    async with RunningGateway(tmp_path, trusting("10.0.0.0/8")) as gateway:
        await gateway.wait_ready()
        assert (await call(gateway, None, **named)).status == 401
        assert (await call(gateway, gateway.key, **named)).status == 200
        assert (await gateway.configure(trusting("127.0.0.0/8"))).ok
        assert (await call(gateway, None, **named)).status == 200
        assert (await call(gateway, gateway.key)).status == 200
        smuggled = await ask(gateway.port, twice)
        assert (smuggled.status, smuggled.code) == (401, "unauthenticated")
        assert not any("headrace" in name for seen in engine.seen for name in seen.headers)
        await gateway.wait_idle()
        await gateway.stop()
        callers = [(one["tenant"], one["key_id"]) for one in records_of(gateway.settings.journal_dir) if one["tenant"]]
    assert callers.count(("search", "trusted-headers:ada")) == 1
    assert len(callers) == 3
