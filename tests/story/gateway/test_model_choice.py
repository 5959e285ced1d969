"""A name that stands for several models: which one answers, what its caller is told, and what is accounted."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.harness.journal_records import records_of
from tests.harness.raw_client import RawAnswer, ask, get, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, answer_normally, whole
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.declaration.model import Declaration
from headrace.domain.routing_status import RouteExplanation
from headrace.domain.tenant import KeyRecord, Scope
from headrace.domain.worker import ExplainRoute

PRICES = {
    "version": "2026-11",
    "models": {
        "large": {"input_per_million": 3.0, "output_per_million": 9.0},
        "small": {"input_per_million": 0.1, "output_per_million": 0.3},
    },
}
SIZES = {"large": {"quality": 0.9}, "small": {"quality": 0.4}}


async def refuse(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(500, b'{"error":{"message":"out of order","code":500}}'))
    await writer.drain()


async def dawdle(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1.0)
    await answer_normally(engine, request, writer)


class Pair:
    """Two engines, one of each model, and a gateway where `auto-chat` stands for both."""

    def __init__(
        self,
        folder: Path,
        auto: dict[str, Any],
        *,
        engine: str = "openai",
        admin: KeyRecord | None = None,
        queue: dict[str, Any] | None = None,
        **sections: Any,
    ) -> None:
        self.large, self.small = ScriptedEngine(), ScriptedEngine()
        self._folder, self._auto, self._sections = folder, auto, sections
        self._engine, self._queue, self._admin = engine, queue or {}, admin
        self.keys = {tenant: new_key(tenant) for tenant in sections.get("tenants", {})}
        self.gateway: RunningGateway

    async def __aenter__(self) -> "Pair":
        await self.large.start()
        await self.small.start()
        pools = {
            "big": remote_pool(self.large.url, model="large", engine=self._engine, served_model="org/large-9000"),
            "tiny": remote_pool(self.small.url, model="small", engine=self._engine, queue=self._queue),
        }
        declaration = declare(
            pools,
            models={"large": {}, "small": {}},
            auto_models={"auto-chat": {"models": SIZES, **self._auto}},
            prices=PRICES,
            **self._sections,
        )
        records = [record for _, record in self.keys.values()] + ([self._admin] if self._admin else [])
        self.gateway = RunningGateway(self._folder, declaration, tuple(records))
        await self.gateway.start()
        await self.gateway.wait_ready(endpoints=2)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.__aexit__()
        await self.large.stop()
        await self.small.stop()

    async def ask(
        self, text: str = "hello", path: str = "/v1/chat/completions", key: str | None = None, **more: Any
    ) -> RawAnswer:
        body = {"model": "auto-chat", "messages": [{"role": "user", "content": text}], **more}
        return await self.send(body, path, key)

    async def send(
        self, body: dict[str, Any], path: str = "/v1/chat/completions", key: str | None = None, **headers: str
    ) -> RawAnswer:
        return await ask(self.gateway.port, post(body, key or self.gateway.key, path, **headers))

    async def explain(self, text: str = "hello", **more: Any) -> RouteExplanation:
        body = {"model": "auto-chat", "messages": [{"role": "user", "content": text}]}
        wish = ExplainRoute(body=json.dumps(body), path="/v1/chat/completions", **{"tenant": "", **more})
        reply = await self.gateway.command(wish)
        assert reply.ok, reply.message
        return msgspec.json.decode(reply.text, type=RouteExplanation)

    @property
    def asked(self) -> tuple[int, int]:
        """Requests that each engine saw."""
        return len(self.large.seen), len(self.small.seen)


async def test_cheapest_of_two_idle_models_answers_and_is_named_to_its_caller(tmp_path: Path):
    """Preferring the cheapest, the cheaper model answers, whole and streamed, and the header names it."""
    async with Pair(tmp_path, {"prefer": "cheapest"}) as pair:
        for more in ({}, {"stream": True}):
            answer = await pair.ask(**more)
            assert (answer.status, answer.headers["x-headrace-model"]) == (200, "small")
        assert pair.asked == (0, 2)
        assert pair.small.seen[0].json["model"] == "small"


async def test_best_model_answers_under_its_engines_own_name(tmp_path: Path):
    """Preferring the best, the request reaches the larger model's engine under the name that it has there."""
    async with Pair(tmp_path, {"prefer": "best"}) as pair:
        answer = await pair.ask()
        assert (answer.status, answer.headers["x-headrace-model"]) == (200, "large")
        assert pair.large.seen[0].json["model"] == "org/large-9000"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_model_that_proves_slow_is_left_for_the_other(tmp_path: Path, is_stream: bool):
    """Once the cheaper model was seen to miss the wanted time to the first token, the other one answers."""
    async with Pair(tmp_path, {"prefer": "cheapest", "ttft_s": 0.4}) as pair:
        pair.small.scripts["slow"] = dawdle
        first = await pair.ask("script:slow", stream=is_stream)
        assert first.headers["x-headrace-model"] == "small"
        await pair.gateway.wait_idle()
        for _ in range(3):
            answer = await pair.ask("script:slow", stream=is_stream)
            assert answer.headers["x-headrace-model"] == "large"
        assert pair.asked == (3, 1)


async def test_a_model_whose_engine_fails_is_replaced_within_the_request(tmp_path: Path):
    """The cheaper model's engine refuses: the same request is answered by the other, named and accounted as that."""
    async with Pair(tmp_path, {"prefer": "cheapest"}) as pair:
        pair.small.scripts["broken"] = refuse
        answers = [await pair.ask("script:broken", stream=is_stream) for is_stream in (False, True)]
        assert [(one.status, one.headers["x-headrace-model"]) for one in answers] == [(200, "large")] * 2
        await pair.gateway.wait_idle()
        await pair.gateway.stop()
    for record in records_of(pair.gateway.settings.journal_dir):
        assert (record["requested_model"], record["chosen_model"], record["pool"]) == ("auto-chat", "large", "big")
        assert (record["attempts"], record["cost_nanos"]) == (2, 7 * 3000 + 3 * 9000)


async def test_a_model_whose_engine_is_gone_is_not_asked(tmp_path: Path):
    """With the cheaper model's only engine gone, the other answers; with both gone, the error names each."""
    async with Pair(tmp_path, {"prefer": "cheapest"}) as pair:
        await pair.small.stop()
        async with asyncio.timeout(30):
            while "not-ready" not in {one.state for one in (await pair.gateway.status()).endpoints}:
                await asyncio.sleep(0.02)
        answer = await pair.ask()
        assert (answer.status, answer.headers["x-headrace-model"]) == (200, "large")
        await pair.large.stop()
        async with asyncio.timeout(30):
            while {one.state for one in (await pair.gateway.status()).endpoints} != {"not-ready"}:
                await asyncio.sleep(0.02)
        refused = await pair.ask()
        assert (refused.status, refused.code) == (503, "no_ready_endpoint")
        assert "model 'large' has 1 endpoints" in refused.json["error"]["message"]
        found = await pair.explain()
        assert found.picked is None
        assert [(row.model, row.outcome) for row in found.models] == [("large", "filtered"), ("small", "filtered")]


TENANTS = {
    "default": {},
    "thrifty": {"models": ["small"]},
    "guided": {"models": ["auto-chat"]},
    "nobody": {"models": []},
}


async def test_tenants_get_only_models_that_they_may_use(tmp_path: Path):
    """A tenant of one model gets that; one of the name alone gets any, but not by its own name; others see nothing."""
    async with Pair(tmp_path, {"prefer": "best"}, tenants=TENANTS) as pair:
        keys = {tenant: key for tenant, (key, _) in pair.keys.items()}
        got = {tenant: await pair.ask(key=key) for tenant, key in keys.items()}
        assert {tenant: one.headers.get("x-headrace-model") for tenant, one in got.items()} == {
            "default": "large", "thrifty": "small", "guided": "large", "nobody": None
        }  # fmt: skip
        assert (got["nobody"].status, got["nobody"].code) == (404, "model_not_found")
        body = {"model": "large", "messages": [{"role": "user", "content": "hi"}]}
        assert (await pair.send(body, key=keys["guided"])).status == 404
        listed = {tenant: await ask(pair.gateway.port, get("/v1/models", key)) for tenant, key in keys.items()}
        assert {tenant: [row["id"] for row in one.json["data"]] for tenant, one in listed.items()} == {
            "default": ["large", "small", "auto-chat"],
            "thrifty": ["small", "auto-chat"],
            "guided": ["auto-chat"],
            "nobody": [],
        }


BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
}


async def test_every_api_takes_the_name(tmp_path: Path):
    """Chat, completions, embeddings, responses and messages all go to the chosen model, and its price is charged."""
    async with Pair(tmp_path, {"prefer": "cheapest"}, engine="vllm") as pair:
        for path, body in BODIES.items():
            answer = await pair.send({"model": "auto-chat", **body}, path)
            assert (answer.status, answer.headers["x-headrace-model"]) == (200, "small"), answer.body
        assert [(one.path, one.json["model"]) for one in pair.small.seen] == [(path, "small") for path in BODIES]
        await pair.gateway.wait_idle()
        await pair.gateway.stop()
    records = records_of(pair.gateway.settings.journal_dir)
    assert [one["chosen_model"] for one in records] == ["small"] * 5
    assert {(one["cost_nanos"], one["price_version"]) for one in records} == {(7 * 100 + 3 * 300, "2026-11")}


async def test_explanation_shows_each_models_latency_price_and_quality(tmp_path: Path):
    """`route explain` and the debug header say what each model would take and cost, and why one was chosen."""
    admin, record = new_key(scope=Scope.ADMIN)
    async with Pair(tmp_path, {"weights": {"quality": 100}}, admin=record) as pair:
        found = await pair.explain()
        assert (found.requested_model, found.model, found.prefer) == ("auto-chat", "large", "balanced")
        assert [(row.model, row.outcome) for row in found.models] == [("large", "picked"), ("small", "scored")]
        for row in found.models:
            assert row.parts_s.keys() == {"latency", "price", "quality"}
            assert row.cost_s == pytest.approx(sum(row.parts_s.values()))
        assert found.picked is not None
        assert found.picked.startswith("big/")
        body = {"model": "auto-chat", "messages": [{"role": "user", "content": "hi"}]}
        told = json.loads((await pair.send(body, x_headrace_explain=admin)).headers["x-headrace-route"])
        assert [row["model"] for row in told["models"]] == ["large", "small"]
        thrifty = await pair.explain(tenant="default")
        assert thrifty.model == "large"


async def test_a_full_model_is_left_for_one_with_room(tmp_path: Path):
    """While the cheaper model's only place is taken, the next request goes to the other rather than to wait."""
    async with Pair(tmp_path, {"prefer": "cheapest", "ttft_s": 0.5}, queue={"sequences": 1}) as pair:
        pair.small.scripts["slow"] = dawdle
        first = asyncio.ensure_future(pair.ask("script:slow"))
        async with asyncio.timeout(30):
            while not pair.small.seen:
                await asyncio.sleep(0.01)
        second = await pair.ask()
        assert (second.status, second.headers["x-headrace-model"]) == (200, "large")
        assert (await first).headers["x-headrace-model"] == "small"


async def test_a_changed_preference_holds_for_the_next_request(tmp_path: Path):
    """A reload that prefers the best instead of the cheapest is in force at once; what was learned stays."""
    async with Pair(tmp_path, {"prefer": "cheapest"}) as pair:
        assert (await pair.ask()).headers["x-headrace-model"] == "small"
        given = pair.gateway.declaration.model_dump(mode="json", exclude_unset=True)
        given["auto_models"]["auto-chat"]["prefer"] = "best"
        reply = await pair.gateway.configure(Declaration.model_validate(given))
        assert reply.ok, reply.message
        assert (await pair.ask()).headers["x-headrace-model"] == "large"
        del given["auto_models"]
        assert (await pair.gateway.configure(Declaration.model_validate(given))).ok
        gone = await pair.ask()
        assert (gone.status, gone.code) == (404, "model_not_found")


async def test_a_conversation_stays_with_the_model_that_has_its_prompt(tmp_path: Path):
    """Of two alike models, the one that has computed a long prompt is chosen for what follows it."""
    async with AsyncExitStack() as stack:
        services = [(await stack.enter_async_context(serving(simulated(context_tokens=8192))))[0] for _ in range(2)]
        urls = [f"http://127.0.0.1:{service.port}" for service in services]
        pools = {
            name: remote_pool(url, model=name, engine="vllm", served_model=MODEL)
            for name, url in zip(("one", "other"), urls, strict=True)
        }
        alike = {"models": {"one": {}, "other": {}}}
        tenants = {"default": {}, "bound": {"models": ["other"]}}
        declaration = declare(pools, models={"one": {}, "other": {}}, auto_models={"auto-chat": alike}, tenants=tenants)
        bound, record = new_key("bound")
        async with RunningGateway(tmp_path, declaration, (record,)) as gateway:
            await gateway.wait_ready(endpoints=2)
            for model, key in (("one", gateway.key), ("other", bound)):
                messages = [{"role": "system", "content": f"You are the {model} of the mill by the river. " * 60}]
                body = {"model": "auto-chat", "messages": messages, "max_tokens": 4, "stream": True}
                assert (await ask(gateway.port, post(body, key))).headers["x-headrace-model"] == model
                await gateway.wait_idle()
                messages.append({"role": "user", "content": "Go on."})
                wish = ExplainRoute(body=json.dumps(body), path="/v1/chat/completions", tenant="default")
                found = msgspec.json.decode((await gateway.command(wish)).text, type=RouteExplanation)
                cached = {row.model: row.cached_tokens or 0 for row in found.models}
                assert found.model == model, found.models
                assert cached.pop(model) > 100
                assert set(cached.values()) == {0}


async def test_a_request_that_no_model_answers_is_accounted_to_the_last_that_was_asked(tmp_path: Path):
    """Both engines refuse: one error, and the ledger names the model of the last attempt."""
    async with Pair(tmp_path, {"prefer": "cheapest"}) as pair:
        pair.small.scripts["broken"] = pair.large.scripts["broken"] = refuse
        answer = await pair.ask("script:broken")
        assert (answer.status, answer.code) == (502, "engine_refused")
        assert pair.asked[0] >= 1
        assert pair.asked[1] == 1
        await pair.gateway.wait_idle()
        await pair.gateway.stop()
    (record,) = records_of(pair.gateway.settings.journal_dir)
    assert (record["requested_model"], record["chosen_model"], record["pool"]) == ("auto-chat", "large", "big")
    assert record["cost_nanos"] is None
