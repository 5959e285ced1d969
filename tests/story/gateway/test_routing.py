"""Where requests go: a real gateway worker before simulated engines with a prefix cache."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.harness.ports import free_port
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.domain.routing_status import RouteExplanation, RoutingStatus
from headrace.domain.tenant import Scope
from headrace.domain.worker import ExplainRoute, ReadRouting, WorkerReply
from headrace.engines.simulated.service import Phase, Service

SYSTEM = {"role": "system", "content": "You are the assistant of a mill by a river. " * 40}


@asynccontextmanager
async def engines(count: int, **more: Any) -> AsyncIterator[list[Service]]:
    """Simulated vLLM engines in this process, with prefix caches."""
    async with AsyncExitStack() as stack:
        yield [
            (await stack.enter_async_context(serving(simulated(context_tokens=8192, **more))))[0] for _ in range(count)
        ]


def pool(*found: Service, **keys: Any) -> dict[str, Any]:
    urls = [f"http://127.0.0.1:{service.port}" for service in found]
    return remote_pool(*urls, **{"engine": "vllm", "served_model": MODEL, **keys})


class Caller:
    """Asks the gateway, and counts which engine answered."""

    def __init__(self, gateway: RunningGateway, key: str | None = None) -> None:
        self._client = httpx.AsyncClient(base_url=gateway.url, timeout=30)
        self._client.headers["authorization"] = f"Bearer {key or gateway.key}"

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, *messages: dict[str, str], explain: str | None = None, **fields: Any) -> httpx.Response:
        body = {"model": "m", "messages": [SYSTEM, *messages], "max_tokens": 4, "stream": True, **fields}
        headers = {} if explain is None else {"x-headrace-explain": explain}
        return await self._client.post("/v1/chat/completions", json=body, headers=headers)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answered(found: list[Service]) -> list[int]:
    """Requests that each engine has answered."""
    return [service.engine.load().finished for service in found]


async def routing(gateway: RunningGateway) -> RoutingStatus:
    return msgspec.json.decode((await gateway.command(ReadRouting())).text, type=RoutingStatus)


async def explained(gateway: RunningGateway, *messages: dict[str, str], **more: Any) -> WorkerReply:
    body = json.dumps({"model": "m", "messages": [SYSTEM, *messages]}, separators=(",", ":"))  # as httpx writes it
    return await gateway.command(ExplainRoute(path="/v1/chat/completions", body=body, **more))


async def test_a_conversation_stays_with_its_cached_prompt(tmp_path: Path) -> None:
    """Turn after turn goes to the engine that has computed the ones before, and what it found cached is counted."""
    async with engines(3) as found, RunningGateway(tmp_path, declare({"p": pool(*found)})) as gateway:
        await gateway.wait_ready(endpoints=3)
        async with Caller(gateway) as caller:
            messages = [user("How fast does the wheel turn? " * 30)]
            for turn in range(6):
                assert (await caller.ask(*messages)).status_code == 200
                messages += [{"role": "assistant", "content": f"answer {turn} " * 20}, user(f"And then, {turn}? " * 20)]
        assert sorted(answered(found)) == [0, 0, 6]
        status = await routing(gateway)
        (tenant,) = status.tenants
        assert (tenant.model, tenant.name, tenant.requests) == ("m", "default", 6)
        assert tenant.prefix_hit_ratio is not None
        assert tenant.prefix_hit_ratio > 0.6
        assert [family.requests for family in status.families] == [6]
        holder = max(status.endpoints, key=lambda each: each.held_tokens)
        assert holder.blocks > 4
        assert holder.trust_ratio > 0.8


async def test_an_explanation_names_the_pick_and_holds_nothing(tmp_path: Path) -> None:
    """`route explain` shows every candidate, what its cost is made of, and that the cached prompt is why."""
    async with engines(3) as found, RunningGateway(tmp_path, declare({"p": pool(*found)})) as gateway:
        await gateway.wait_ready(endpoints=3)
        question = user("Where does the water go? " * 40)
        async with Caller(gateway) as caller:
            assert (await caller.ask(question)).status_code == 200
        await gateway.wait_idle()
        for _ in range(2):
            reply = await explained(gateway, question, user("And after that?"))
            assert reply.ok, reply.message
            told = msgspec.json.decode(reply.text, type=RouteExplanation)
            best = told.candidates[0]
            assert (told.picked, best.outcome) == (best.endpoint, "picked")
            assert found[answered(found).index(1)].port == int(best.endpoint.rsplit(":", 1)[1])
            assert best.cached_tokens is not None
            assert best.cached_tokens > 300
            assert [each.cached_tokens for each in told.candidates[1:]] == [0, 0]
            for each in told.candidates:
                assert each.cost_s is not None
                assert abs(each.cost_s - sum(each.parts_s.values())) < 1e-9
        assert sum(answered(found)) == 1
        refused = await gateway.command(ExplainRoute(path="/v1/chat/completions", body="{"))
        assert not refused.ok
        assert refused.message.startswith("invalid_request")


async def test_a_restarted_engine_is_known_to_hold_nothing(tmp_path: Path) -> None:
    """When an endpoint was away, the gateway no longer believes in what it held."""
    async with engines(2) as found, RunningGateway(tmp_path, declare({"p": pool(*found)})) as gateway:
        await gateway.wait_ready(endpoints=2)
        question = user("Who feeds the miller's cat? " * 40)
        async with Caller(gateway) as caller:
            assert (await caller.ask(question)).status_code == 200
        holder = found[answered(found).index(1)]
        assert max(each.blocks for each in (await routing(gateway)).endpoints) > 4
        holder.phase = Phase.LOADING
        while (await gateway.status()).endpoints[found.index(holder)].state != "not-ready":
            pass
        holder.become_ready()
        await gateway.wait_ready(endpoints=2)
        while max(each.blocks for each in (await routing(gateway)).endpoints):
            pass


async def test_pools_take_only_whom_they_accept(tmp_path: Path) -> None:
    """A tenant's own pool is never given others' requests, and the explanation says so."""
    other_key, record = new_key("other")
    async with engines(2) as (own, common):
        pools = {"own": pool(own, accepts={"tenants": ["default"]}), "common": pool(common)}
        declaration = declare(pools, tenants={"default": {}, "other": {}})
        async with RunningGateway(tmp_path, declaration, keys=(record,)) as gateway:
            await gateway.wait_ready(endpoints=2)
            async with Caller(gateway, other_key) as caller:
                for number in range(6):
                    assert (await caller.ask(user(f"{number} " * 300))).status_code == 200
            assert answered([own, common]) == [0, 6]
            told = msgspec.json.decode((await explained(gateway, tenant="other")).text, type=RouteExplanation)
            (left_out,) = [each for each in told.candidates if each.outcome == "filtered"]
            assert (left_out.pool, left_out.reason) == ("own", "accepts: its pool accepts tenants default")


async def test_a_canary_gets_its_share(tmp_path: Path) -> None:
    """With weights 3 and 1, every fourth request goes to the canary; conversations that name themselves stay."""
    async with engines(2) as (stable, canary):
        models = {"m": {"routing": {"split": {"stable": 3, "canary": 1}}}}
        declaration = declare({"stable": pool(stable), "canary": pool(canary)}, models=models)
        async with RunningGateway(tmp_path, declaration) as gateway:
            await gateway.wait_ready(endpoints=2)
            async with Caller(gateway) as caller:
                for number in range(16):
                    assert (await caller.ask(user(f"{number} " * 200))).status_code == 200
                assert answered([stable, canary]) == [12, 4]
                for _ in range(5):
                    assert (await caller.ask(user("hello"), prompt_cache_key="one")).status_code == 200
                assert sorted(
                    now - before for now, before in zip(answered([stable, canary]), (12, 4), strict=True)
                ) == [
                    0,
                    5,
                ]


async def test_sessions_keep_their_endpoint(tmp_path: Path) -> None:
    """With session affinity declared, requests that name a session go to one endpoint, other sessions elsewhere."""
    routes = {"scorers": [{"kind": "session-affinity"}], "prefix_index": {"enabled": False}}
    declaration_models = {"m": {"routing": routes}}
    async with engines(3) as found:
        declaration = declare({"p": pool(*found)}, models=declaration_models)
        async with RunningGateway(tmp_path, declaration) as gateway:
            await gateway.wait_ready(endpoints=3)
            async with Caller(gateway) as caller:
                before = answered(found)
                used: set[int] = set()
                for session in range(8):
                    for number in range(3):
                        assert (await caller.ask(user(str(number)), prompt_cache_key=f"s{session}")).status_code == 200
                    now = answered(found)
                    grown = [place for place in range(3) if now[place] > before[place]]
                    assert len(grown) == 1
                    used.update(grown)
                    before = now
                assert len(used) > 1


async def test_an_admin_key_beside_the_request_shows_the_choice(tmp_path: Path) -> None:
    """`x-headrace-explain` with an admin key adds a header that tells why; with any other key it is refused."""
    admin_key, record = new_key(scope=Scope.ADMIN)
    async with engines(2) as found:
        async with RunningGateway(tmp_path, declare({"p": pool(*found)}), keys=(record,)) as gateway:
            await gateway.wait_ready(endpoints=2)
            async with Caller(gateway) as caller:
                answer = await caller.ask(user("Is the sluice open?"), explain=admin_key)
                assert answer.status_code == 200
                told = json.loads(answer.headers["x-headrace-route"])
                assert [each["outcome"] for each in told["candidates"]] == ["picked", "scored"]
                assert told["picked"] == told["candidates"][0]["endpoint"]
                refused = await caller.ask(user("Is the sluice open?"), explain=gateway.key)
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
                assert "x-headrace-route" not in (await caller.ask(user("And now?"))).headers
            assert sum(answered(found)) == 2


async def test_what_was_no_candidate_is_counted_by_its_filter(tmp_path: Path) -> None:
    """An engine that is down, and pools that do not take the request, are in the metrics of every choice."""
    async with engines(4) as found, AsyncExitStack() as stack:
        long_prompts = pool(*found[2:], accepts={"min_input_tokens": 100_000})
        declaration = declare({"p": pool(*found[:2]), "long": long_prompts})
        gateway = await stack.enter_async_context(RunningGateway(tmp_path, declaration))
        await gateway.wait_ready(endpoints=4)
        async with Caller(gateway) as caller:
            for number in range(3):
                assert (await caller.ask(user(str(number)))).status_code == 200
        left_out = 'headrace_routing_left_out_total{filter="%s",model="m"}'
        assert await gateway.metric(left_out % "pool-rules") == 6
        assert await gateway.metric(left_out % "not-usable") is None
        assert answered(found)[2:] == [0, 0]


async def test_an_engine_that_is_down_is_no_candidate(tmp_path: Path) -> None:
    """Two of three are left to choose from, and the third is counted with each choice."""
    async with engines(2) as found:
        urls = [f"http://127.0.0.1:{service.port}" for service in found]
        dead = remote_pool(*urls, f"http://127.0.0.1:{free_port()}", engine="vllm", served_model=MODEL)
        async with RunningGateway(tmp_path, declare({"p": dead})) as gateway, Caller(gateway) as caller:
            await gateway.wait_ready(endpoints=2)
            for number in range(3):
                assert (await caller.ask(user(str(number)))).status_code == 200
            assert await gateway.metric('headrace_routing_left_out_total{filter="not-usable",model="m"}') == 3
