"""Limits of every kind and level under 200 callers at once; refusals, caps, and what a request is charged."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.journal_records import records_of
from tests.harness.polling import until
from tests.harness.raw_client import RawClient, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.saturating import CountingEngine, saturate, work
from tests.harness.scripted_engine import STREAM_HEAD, ScriptedEngine, Seen, chunk_event, framed

from headrace.domain.quota import LimitSet, Unit
from headrace.domain.tenant import KeyRecord
from headrace.gateway.entry.routes import ROUTES

PRICES = {"version": "test-1", "models": {"m": {"input_per_million": 1, "output_per_million": 2}}}
RATES = {"prefill_tokens_per_s": 10_000, "decode_tokens_per_s": 1000}


@pytest.fixture
def counting(engine: ScriptedEngine) -> CountingEngine:
    counting = CountingEngine()
    counting.join(engine)
    return counting


@asynccontextmanager
async def declared(
    folder: Path, engine: ScriptedEngine, *keys: KeyRecord, **sections: Any
) -> AsyncIterator[RunningGateway]:
    pool = remote_pool(engine.url, rates=RATES, **sections.pop("pool", {}))
    async with RunningGateway(folder, declare({"p": pool}, **sections), keys) as running:
        await running.wait_ready()
        yield running


# What is limited, in the file; a request; and how much of the unit one such request uses, as the engine counts.
LIMITS = {
    "requests": ({"limits": {"requests_per_min": 300}}, work(), 300, lambda seen: seen.answered),
    "input": ({"limits": {"input_tokens_per_min": 20_000}}, work(), 20_000, lambda seen: seen.input_tokens),
    "output": (
        {"limits": {"output_tokens_per_min": 10_000}},
        work(max_tokens=50),
        10_000,
        lambda seen: seen.output_tokens,
    ),
    "gpu": ({"limits": {"gpu_seconds_per_min": 12.0}}, work(max_tokens=50), 12.0, lambda seen: seen.answered * 0.06),
    "day": ({"budget": {"per_day": 0.04}}, work(max_tokens=50), 0.04, lambda seen: seen.answered * 0.0002),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_holds_and_is_used_under_200_callers(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine, name: str
) -> None:
    """However many ask at once, no limit is exceeded, and at least 95 % of each can be used (PAINS 5, 8)."""
    section, body, amount, used = LIMITS[name]
    async with declared(tmp_path, engine, tenants={"default": section}, prices=PRICES) as gateway:
        good = await saturate(gateway, gateway.key, body)
        assert len(good) == counting.answered
        assert 0.95 * amount <= used(counting) <= amount * (1 + 1e-9)
        assert (await gateway.wait_idle()).in_flight == 0


async def test_answers_without_a_limit_exceed_by_less_than_one_answer(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine
) -> None:
    """Callers that set no max_tokens are counted by what is learned of the model's answers."""
    tenants = {"default": {"limits": {"output_tokens_per_min": 10_000}}}
    async with declared(tmp_path, engine, tenants=tenants) as gateway:
        await saturate(gateway, gateway.key, work())
        assert 9_500 <= counting.output_tokens <= 10_050


LEVELS = ("gateway", "organisation", "tenant", "project", "key")


@pytest.mark.parametrize("level", LEVELS)
async def test_the_tightest_level_wins_and_is_named(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine, level: str
) -> None:
    """Every level has its limits; a refusal says which one it was, how much was used and when to come back."""
    rates = {named: 5 if named == level else 50 for named in LEVELS}
    limits = {named: {"limits": {"requests_per_min": rate}} for named, rate in rates.items()}
    key, record = new_key("team", project="web", limits=LimitSet(amounts={Unit.REQUESTS_PER_MIN: rates["key"]}))
    sections = {
        "quota": limits["gateway"],
        "organisations": {"acme": limits["organisation"]},
        "tenants": {
            "default": {},
            "team": {"organisation": "acme", **limits["tenant"], "projects": {"web": limits["project"]}},
        },
    }
    names = {"gateway": "", "organisation": "acme", "tenant": "team", "project": "team/web", "key": record.key_id}
    async with declared(tmp_path, engine, record, **sections) as gateway:
        answers = [await ask(gateway.port, post(work(), key)) for _ in range(6)]
        assert [answer.status for answer in answers] == [200] * 5 + [429]
        error = answers[-1].json["error"]
        assert (error["code"], error["level"], error["name"]) == ("rate_limited", level, names[level])
        assert (error["limit"], error["limit_amount"], error["used"]) == ("requests_per_min", 5, 5)
        assert 55 < error["reset_s"] <= 61
        assert 55 < int(answers[-1].headers["retry-after"]) <= 61
        assert answers[-1].headers["x-ratelimit-remaining-requests"] == "0"
        assert [int(answer.headers["x-ratelimit-remaining-requests"]) for answer in answers[:5]] == [4, 3, 2, 1, 0]


KINDS = {
    "concurrent_requests": ({}, {}),
    "concurrent_streaming": ({"stream": True}, {}),
    "concurrent_interactive": ({}, {"x_headrace_class": "interactive"}),
    "concurrent_offline": ({}, {"x_headrace_class": "offline"}),
}


async def test_concurrency_is_never_above_its_limit(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine
) -> None:
    """200 callers at once: as many as are allowed are in work, and never one more, for each kind of request."""
    made = {kind: new_key(kind) for kind in KINDS}
    tenants = {"default": {}, **{kind: {"limits": {kind: 8}} for kind in KINDS}}
    async with declared(tmp_path, engine, *(record for _, record in made.values()), tenants=tenants) as gateway:
        for kind, (fields, headers) in KINDS.items():
            counting.most_at_once = 0
            await saturate(gateway, made[kind][0], work(10, 3, 0.02, **fields), most=100, **headers)
            assert counting.most_at_once == 8, kind
            others = {} if kind != "concurrent_streaming" else {"stream": False}
            assert (
                kind == "concurrent_requests"
                or (await ask(gateway.port, post(work(10, 3, **others), made[kind][0]))).status == 200
            )
        await gateway.wait_idle()


async def test_slots_come_back_whatever_happens(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine
) -> None:
    """Callers that leave, engines that die, time-outs: in no phase is a slot lost (PAINS 6)."""

    async def stall(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk_event("a")))
        await writer.drain()
        await asyncio.sleep(60)

    async def cut(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    engine.scripts |= {"stall": stall, "cut": cut}
    pool = {"stall_timeout_s": 0.5, "first_token_timeout_s": 0.5, "answer_timeout_s": 0.5, "probe": {"eject_after": 99}}
    tenants = {"default": {"limits": {"concurrent_requests": 3}}}
    async with declared(tmp_path, engine, tenants=tenants, pool=pool) as gateway:

        async def leave(body: dict[str, Any], after_bytes: int) -> None:
            async with RawClient(gateway.port) as client:
                await client.send(post(body, gateway.key))
                if after_bytes:
                    await client.reader.readexactly(after_bytes)

        for _ in range(2):
            await asyncio.gather(*(leave(chat("script:stall", stream=True), 0) for _ in range(3)))
            await gateway.wait_idle()
            await asyncio.gather(*(leave(chat("script:stall", stream=True), 40) for _ in range(3)))
            await gateway.wait_idle()
            for body, headers in (
                (chat("script:stall", stream=True), {}),
                (chat("script:cut"), {}),
                (work(hold_s=-1), {}),
                (work(hold_s=-1), {"x_request_timeout": "0.2"}),
                (chat("script:cut", model="none"), {}),
                (chat("x", max_tokens=-1), {}),
            ):
                await asyncio.gather(*(ask(gateway.port, post(body, gateway.key, **headers)) for _ in range(3)))
            await gateway.wait_idle()
        counting.most_at_once = 0
        await saturate(gateway, gateway.key, work(10, 3, 0.02), callers=20, most=20)
        assert counting.most_at_once == 3


async def test_what_is_refused_costs_nothing(tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine) -> None:
    """A refusal, by a limit, a cap or the engine, leaves limits and ledger's sums unchanged (PAINS 7)."""

    async def too_long(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"error": {"message": "maximum context length is 10 tokens", "code": 400}}).encode()
        writer.write(b"HTTP/1.1 400 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    engine.scripts["long"] = too_long
    limits = {"requests_per_min": 2, "per_request": {"output_tokens": 60}}
    async with declared(tmp_path, engine, tenants={"default": {"limits": limits}}, prices=PRICES) as gateway:
        for _ in range(5):
            assert (await ask(gateway.port, post(work(max_tokens=61), gateway.key))).status == 400
            assert (await ask(gateway.port, post(chat("script:long"), gateway.key))).status == 400
        assert [(await ask(gateway.port, post(work(), gateway.key))).status for _ in range(3)] == [200, 200, 429]
        await gateway.wait_idle()
    records = records_of(gateway.settings.journal_dir)
    costs = [record["cost_nanos"] for record in records]
    assert (len(records), [cost for cost in costs if cost is not None]) == (13, [200_000, 200_000])
    assert {record["price_version"] for record in records if record["cost_nanos"]} == {"test-1"}


CAPS: dict[str, tuple[dict[str, int], dict[str, Any], int]] = {
    "body_bytes": ({"body_bytes": 500}, {"user": "u" * 500}, 413),
    "output_tokens": ({"output_tokens": 10}, {"max_completion_tokens": 11}, 400),
    "choices": ({"choices": 2}, {"n": 3}, 400),
    "tools": ({"tools": 1}, {"tools": [{"type": "function", "function": {"name": name}} for name in "ab"]}, 400),
    "context_tokens": ({"context_tokens": 5000}, {"max_tokens": 5001}, 400),
    "images": (
        {"images": 0},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]},
        400,
    ),
}


async def test_caps_of_a_single_request(tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine) -> None:
    """A request that asks for too much at once is refused by name; the same without that is served."""
    made = {name: new_key(name) for name in CAPS}
    tenants = {"default": {}, **{name: {"limits": {"per_request": cap}} for name, (cap, _, _) in CAPS.items()}}
    async with declared(tmp_path, engine, *(record for _, record in made.values()), tenants=tenants) as gateway:
        for name, (_, fields, status) in CAPS.items():
            key = made[name][0]
            assert (await ask(gateway.port, post(chat("short"), key))).status == 200, name
            refused = await ask(gateway.port, post({**chat("short"), **fields}, key))
            assert (refused.status, f"per_request.{name}" in refused.json["error"]["message"]) == (status, True), name
    (capped,) = [seen.json for seen in engine.seen if "max_tokens" in seen.json]
    assert capped["max_tokens"] == 10  # put in, where the caller gave no limit


async def test_no_route_goes_round_a_limit(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Every route that reaches an engine is under the same limits and budgets (PAINS 9)."""
    paths = [path.decode() for path, route in ROUTES.items() if route.dialect is not None]
    keys = {unit: new_key(unit) for unit in ("requests_per_min", "input_tokens_per_min", "per_day")}
    tenants = {
        "default": {},
        "requests_per_min": {"limits": {"requests_per_min": 0}},
        "input_tokens_per_min": {"limits": {"input_tokens_per_min": 0}},
        "per_day": {"budget": {"per_day": 0}},
    }
    pool = {"engine": "vllm"}
    body = {"model": "m", "messages": [], "prompt": "x", "input": "x", "max_tokens": 5}
    async with declared(
        tmp_path, engine, *(record for _, record in keys.values()), tenants=tenants, prices=PRICES, pool=pool
    ) as gateway:
        for path in paths:
            for unit, (key, _) in keys.items():
                answer = await ask(gateway.port, post(body, key, path))
                assert (answer.status, path, unit) == (429, path, unit)
    assert (len(paths), engine.seen) == (5, [])


async def test_the_ledger_has_what_the_engine_counted(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine
) -> None:
    """Completed: the engine's count, with GPU time and cost; cancelled: what was received, and the input as estimated;
    given back: what was reserved and not used.
    """
    tenants = {"default": {"limits": {"output_tokens_per_min": 1000}}}
    async with declared(tmp_path, engine, tenants=tenants, prices=PRICES) as gateway:
        await ask(gateway.port, post(work(100, 50, max_tokens=900), gateway.key))
        async with RawClient(gateway.port) as client:
            await client.send(post(work(100, 40, -1, stream=True, max_tokens=900), gateway.key))
            await client.head()
            received = b""
            async for chunk in client.chunks():
                received += chunk
                if received.count(b"data: ") >= 40:
                    break
        await gateway.wait_idle()
        last = await ask(gateway.port, post(work(100, 50, max_tokens=900), gateway.key))
        assert last.headers["x-ratelimit-remaining-tokens"] == str(1000 - 50 - 40 - 900)
        await gateway.wait_idle()
    whole, cut, _ = records_of(gateway.settings.journal_dir)
    assert (whole["outcome"], whole["input_tokens"], whole["output_tokens"]) == ("completed", 100, 50)
    assert (whole["gpu_s"], whole["cost_nanos"]) == (pytest.approx(0.06), 200_000)
    assert (cut["outcome"], cut["input_tokens"], cut["output_tokens"]) == ("cancelled", None, 40)
    assert cut["cost_nanos"] > 80_000


async def test_retries_are_charged_once(tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine) -> None:
    """Whatever it takes to answer, one request is one request (PAINS 12)."""
    failures = 2

    async def fail_first(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            writer.transport.abort()
            return
        await counting.answer(engine, request, writer)

    engine.scripts = {"work": fail_first}
    limits = {"requests_per_min": 10, "output_tokens_per_min": 1000}
    pool = {"probe": {"eject_after": 99}}
    async with declared(tmp_path, engine, tenants={"default": {"limits": limits}}, pool=pool) as gateway:
        assert (await ask(gateway.port, post(work(max_tokens=50), gateway.key))).status == 200
        again = await ask(gateway.port, post(work(max_tokens=50), gateway.key))
        assert again.headers["x-ratelimit-remaining-requests"] == "8"
        assert again.headers["x-ratelimit-remaining-tokens"] == "900"
    assert [record["attempts"] >= 2 for record in records_of(gateway.settings.journal_dir)] == [True, False]


async def test_a_long_answer_is_seen_while_it_streams(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine
) -> None:
    """An answer longer than was expected takes more of the limit at once, not only at its end."""
    tenants = {"default": {"limits": {"output_tokens_per_min": 100_000}}}
    async with declared(tmp_path, engine, tenants=tenants) as gateway:
        long = asyncio.ensure_future(ask(gateway.port, post(work(10, 3000, -1, stream=True), gateway.key)))
        await until(lambda: counting.at_once == 1)
        async with asyncio.timeout(20):
            while True:
                probe = await ask(gateway.port, post(work(10, 1, max_tokens=1), gateway.key))
                if int(probe.headers["x-ratelimit-remaining-tokens"]) < 100_000 - 3000:
                    break
                await asyncio.sleep(0.05)
        counting.release.set()
        assert (await long).status == 200
        await gateway.wait_idle()
        probe = await ask(gateway.port, post(work(10, 1, max_tokens=1), gateway.key))
        used = 100_000 - int(probe.headers["x-ratelimit-remaining-tokens"])
        assert 3000 < used < 3100


async def test_junk_makes_no_series(tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine) -> None:
    """Tenants beyond the bound share one name in metrics; refusals are counted by level and limit (PAINS 14)."""
    made = [new_key(f"t{number}") for number in range(6)]
    tenants = {"default": {}, **{f"t{number}": {"limits": {"requests_per_min": 1}} for number in range(6)}}
    quota = {"named_tenants": 3}
    records = [record for _, record in made]
    async with declared(tmp_path, engine, *records, tenants=tenants, quota=quota, prices=PRICES) as gateway:
        for key, _ in made:
            for _ in range(2):
                await ask(gateway.port, post(work(), key))
        await gateway.wait_idle()
        lines = [
            line for line in (await gateway.metrics()).splitlines() if line.startswith("headrace_tenant_requests_t")
        ]
        named = {line.split('tenant="')[1].split('"')[0] for line in lines}
        assert named == {"default", "t0", "t1", "other"}
        assert await gateway.metric('headrace_tenant_requests_total{outcome="completed",tenant="other"}') == 4
        assert await gateway.metric('headrace_tenant_cost_total{currency="USD",tenant="t0"}') == pytest.approx(0.0002)
        assert await gateway.metric('headrace_quota_refusals_total{level="tenant",limit="requests_per_min"}') == 6


async def test_callers_bound_to_a_region_stay_in_it(
    tmp_path: Path, engine: ScriptedEngine, counting: CountingEngine
) -> None:
    """No attempt goes to a pool elsewhere, not even where the region has no engine left."""
    keys = {name: new_key(name) for name in ("free", "eu", "asia")}
    tenants = {"default": {}, "free": {}, "eu": {"regions": ["eu"]}, "asia": {"regions": ["asia"]}}
    async with ScriptedEngine() as abroad:
        CountingEngine().join(abroad)
        pools = {
            "here": remote_pool(engine.url, region="eu"),
            "there": remote_pool(abroad.url, region="us"),
            "nowhere": remote_pool(abroad.url),
        }
        declaration = declare(pools, tenants=tenants)
        async with RunningGateway(tmp_path, declaration, tuple(record for _, record in keys.values())) as gateway:
            await gateway.wait_ready(endpoints=3)
            for _ in range(12):
                assert (await ask(gateway.port, post(work(), keys["eu"][0]))).status == 200
            assert (counting.answered, abroad.seen) == (12, [])
            refused = await ask(gateway.port, post(work(), keys["asia"][0]))
            assert (refused.status, refused.code) == (503, "no_ready_endpoint")
            assert "in the regions of this key (asia)" in refused.json["error"]["message"]
            await engine.stop()
            assert (await ask(gateway.port, post(work(), keys["eu"][0]))).status in (502, 503)
            assert abroad.seen == []
            assert (await ask(gateway.port, post(work(), keys["free"][0]))).status == 200
