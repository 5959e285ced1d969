"""Why prompts miss the engines' caches: planted divergences and a healthy mix before simulated vLLM engines."""

import json
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.domain.miss_status import MissCause, MissRow, MissStatus
from headrace.domain.worker import ReadMetrics, ReadMisses
from headrace.engines.simulated.service import Service

Body = dict[str, Any]
RULES = "\n".join(f"Rule {chr(97 + k)}: whoever keeps the {word} sees to it that it is never left alone."
    for k, word in enumerate("sluice wheel race weir pond gate shaft stone hopper bin sack scale cart mule".split())
)  # fmt: skip
OPENING = "You are the assistant of a mill by a river, and patient with everybody who asks. "


@asynccontextmanager
async def engines(count: int, **more: Any) -> AsyncGenerator[list[Service]]:
    async with AsyncExitStack() as stack:
        yield [
            (await stack.enter_async_context(serving(simulated(context_tokens=16384, **more))))[0] for _ in range(count)
        ]


def pool(*found: Service, **keys: Any) -> Body:
    urls = [f"http://127.0.0.1:{service.port}" for service in found]
    return remote_pool(*urls, **{"engine": "vllm", "served_model": MODEL, **keys})


async def ask(
    gateway: RunningGateway, bodies: Iterable[Body], key: str | None = None, client: httpx.AsyncClient | None = None
) -> None:
    if client is None:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as own:
            return await ask(gateway, bodies, key, own)
    for body in bodies:
        sent = {"model": "m", "max_tokens": 2, **body}
        headers = {"authorization": f"Bearer {key or gateway.key}"}
        answer = await client.post("/v1/chat/completions", json=sent, headers=headers)
        assert answer.status_code == 200, answer.text
    return None


async def misses(gateway: RunningGateway) -> MissStatus:
    return msgspec.json.decode((await gateway.command(ReadMisses())).text, type=MissStatus)


def system(text: str) -> Body:
    return {"role": "system", "content": text}


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def tool(name: str, **more: Any) -> Body:
    text = f"Look up what the books of the mill say of {name}, and nothing else than that. " * 3
    parameters = {"type": "object", "properties": {"day": {"type": "string"}, "page": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": parameters, **more}}


TOOLS = [tool(name) for name in ("corn", "flour", "water", "wages", "weather")]


def white_space() -> Iterator[Body]:
    for k in range(5):
        yield {"messages": [system(OPENING + "\n" * (k + 1) + RULES), user(f"Question {k}")]}


def tool_order() -> Iterator[Body]:
    for k in range(5):
        yield {"messages": [system(OPENING), user(f"Question {k}")], "tools": TOOLS[k:] + TOOLS[:k]}


def key_order() -> Iterator[Body]:
    texts = TOOLS[0]["function"]["description"]
    for k in range(5):
        members = [("type", "object"), ("description", texts), ("required", ["day"]), ("title", "Of the books"),
                   ("properties", {"day": {"type": "string", "description": texts}})]  # fmt: skip
        first = tool("corn", parameters=dict(members[k:] + members[:k]))
        yield {"messages": [system(OPENING), user(f"Question {k}")], "tools": [first, *TOOLS[1:]]}


def timestamp() -> Iterator[Body]:
    for k in range(5):
        yield {"messages": [system(f"{OPENING}It is 2026-11-30T1{k}:04:05Z now.\n{RULES}"), user(f"Question {k}")]}


def identifier() -> Iterator[Body]:
    for k in range(5):
        name = f"{k}f2b8c1e-77aa-4222-8333-abcdef012345"
        yield {"messages": [system(f"{OPENING}Session {name}.\n{RULES}"), user(f"Question {k}")]}


def parameter() -> Iterator[Body]:
    for k in range(5):
        kwargs = {"thinking_budget": 1000 * (k + 1)}
        yield {"messages": [system(OPENING + RULES), user(f"Question {k}")], "chat_template_kwargs": kwargs}


def dynamic_content() -> Iterator[Body]:
    for name in ("Alice of the hill", "Bob", "Carla from town", "Dan the smith", "Eve"):
        yield {"messages": [system(f"{OPENING}You talk with {name} today.\n{RULES}"), user(f"I am {name}")]}


def tools_changed() -> Iterator[Body]:
    for k in range(5):
        yield {"messages": [system(OPENING), user(f"Question {k}")], "tools": [tool(f"extra-{'x' * k}"), *TOOLS]}


def long_user(k: int) -> Body:
    return user(f"Turn {chr(97 + k)}: " + f"and what of the {chr(97 + k)} wheel, and the water that drives it? " * 12)


def reply(k: int) -> Body:
    return {"role": "assistant", "content": f"As to {chr(97 + k)}: " + f"the {chr(97 + k)} wheel turns slowly. " * 12}


def turns(count: int, first: int = 0) -> list[Body]:
    return [message for k in range(first, count) for message in (long_user(k), reply(k))]


def message_edited() -> Iterator[Body]:
    yield {"messages": [system(OPENING), *turns(4), user("Go on")]}
    for k in range(4):
        edited = turns(4)
        edited[1] = {"role": "assistant", "content": "Cut short: " + "xyzw"[k] * 40}
        yield {"messages": [system(OPENING), *edited, user("Go on")]}


def message_inserted() -> Iterator[Body]:
    found: list[Body] = []
    for k in range(5):
        yield {"messages": [system(OPENING), *found, *turns(4), user("Go on")]}
        found.insert(0, user(f"{'vwxyz'[k] * 80}, as the books have it"))


def front_truncated() -> Iterator[Body]:
    for k in range(5):
        yield {"messages": [system(OPENING), *turns(k + 5, first=k), user("Go on")]}


SYSTEM, TOOL, PAIR = "messages[0].content (system)", "tools[0]", len(OPENING)
PLANTED: list[tuple[Callable[[], Iterator[Body]], MissCause, str, int | None]] = [
    (white_space, MissCause.WHITE_SPACE, SYSTEM, PAIR + 1),
    (tool_order, MissCause.TOOL_ORDER, TOOL, len('{"type":"function","function":{"name":"')),
    (key_order, MissCause.KEY_ORDER, TOOL, json.dumps(TOOLS[0], separators=(",", ":")).index('"parameters"') + 14),
    (timestamp, MissCause.TIMESTAMP, SYSTEM, PAIR + len("It is 2026-11-30T1")),
    (identifier, MissCause.IDENTIFIER, SYSTEM, PAIR + len("Session ")),
    (parameter, MissCause.PARAMETER, "chat_template_kwargs", len('{"thinking_budget":')),
    (dynamic_content, MissCause.DYNAMIC_CONTENT, SYSTEM, PAIR + len("You talk with ")),
    (tools_changed, MissCause.TOOLS_CHANGED, TOOL, len('{"type":"function","function":{"name":"extra-')),
    (message_edited, MissCause.MESSAGE_EDITED, "messages[2].content (assistant)", None),
    (message_inserted, MissCause.MESSAGE_INSERTED, "messages[1].content (user)", 0),
    (front_truncated, MissCause.FRONT_TRUNCATED, "messages[1].content (user)", len("Turn ")),
]


def check(row: MissRow, cause: MissCause, place: str, byte: int | None) -> None:
    assert (row.cause, row.place) == (cause, place)
    assert row.requests >= 3
    assert row.tokens_lost_per_hour > 0
    assert row.advice
    if byte is not None:
        assert row.byte_offset is not None
        assert row.grain_bytes is not None
        assert row.grain_bytes <= 64
        assert row.byte_offset <= byte < row.byte_offset + row.grain_bytes


async def test_planted_divergences_are_named(tmp_path: Path) -> None:
    """Of each thing that differs from request to request, cause, message, field and byte are named, and nothing else.

    Each is planted by a tenant of its own; the engine's cached tokens are what it truly found.
    """
    keys = {cause.value: new_key(cause.value) for _, cause, _, _ in PLANTED}
    records = tuple(record for _, record in keys.values())
    async with engines(1) as found:
        declaration = declare({"p": pool(*found)}, tenants={name: {} for name in ("default", *keys)})
        async with RunningGateway(tmp_path, declaration, keys=records) as gateway:
            await gateway.wait_ready(endpoints=1)
            for bodies, cause, _, _ in PLANTED:
                await ask(gateway, bodies(), keys[cause.value][0])
            status = await misses(gateway)
            metrics = (await gateway.command(ReadMetrics())).text
    told = msgspec.json.encode(status).decode() + json.dumps(metrics)
    assert not any(word in told for word in ("sluice", "wheel", "flour", "patient", "Question", "Alice", "f2b8c1e"))
    rows = {row.tenant: row for row in status.rows}
    assert len(rows) == len(status.rows) == len(PLANTED)
    for _, cause, place, byte in PLANTED:
        check(rows[cause.value], cause, place, byte)
        assert f'headrace_cache_misses_total{{cause="{cause.value}"}} {rows[cause.value].requests}.0' in metrics


WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdgklmnrst"]


def prose(chance: random.Random, sentences: int) -> str:
    return ". ".join(" ".join(chance.choices(WORDS, k=9)).capitalize() for _ in range(sentences))


def conversation(name: str, count: int) -> Iterator[Body]:
    """Turn after turn of one conversation, all before kept."""
    start = [system(f"{name} {OPENING}" + RULES)]
    for k in range(1, count + 1):
        yield {"messages": [*start, *(message | {"content": name + message["content"]} for message in turns(k))][:-1]}


async def test_an_evicted_prompt_is_named(tmp_path: Path) -> None:
    """Conversations that come back after others have filled the engine's memory are told to have been evicted."""
    chance = random.Random(1)
    told = [{"messages": [system(prose(chance, 60)), user(prose(chance, 2))]} for _ in range(4)]
    async with engines(1, kv_tokens=2048) as found, RunningGateway(tmp_path, declare({"p": pool(*found)})) as gateway:
        await gateway.wait_ready(endpoints=1)
        await ask(gateway, [told[0], told[0]])
        for _ in range(5):
            await ask(gateway, told)
        status = await misses(gateway)
    assert {row.cause for row in status.rows} == {MissCause.EVICTED}
    assert all(row.place == "" and row.byte_offset is None for row in status.rows)


async def test_a_prompt_answered_elsewhere_is_named(tmp_path: Path) -> None:
    """With round robin, a conversation's turns meet engines that have not seen the one before."""
    routes = {"scorers": [{"kind": "round-robin"}], "prefix_index": {"enabled": False}}
    declaration_models = {"m": {"routing": routes}}
    async with engines(2) as found:
        async with RunningGateway(tmp_path, declare({"p": pool(*found)}, models=declaration_models)) as gateway:
            await gateway.wait_ready(endpoints=2)
            await ask(gateway, conversation("Gardener", 9))
            status = await misses(gateway)
    assert [row.cause for row in status.rows] == [MissCause.OTHER_ENDPOINT]


async def test_a_change_of_version_is_named(tmp_path: Path) -> None:
    """A conversation that is split between two versions of a model finds nothing cached at the other one."""
    routes = {"scorers": [{"kind": "round-robin"}], "prefix_index": {"enabled": False}}
    async with AsyncExitStack() as stack:
        found: list[Service] = []
        for name in ("m-2025", "m-2026"):
            config = replace(simulated(context_tokens=16384), served_model=name)
            found.append((await stack.enter_async_context(serving(config)))[0])
        pools = {"old": pool(found[0], served_model="m-2025"), "new": pool(found[1], served_model="m-2026")}
        declaration = declare(pools, models={"m": {"routing": routes}})
        async with RunningGateway(tmp_path, declaration) as gateway:
            await gateway.wait_ready(endpoints=2)
            await ask(gateway, conversation("Gardener", 9))
            status = await misses(gateway)
    assert [row.cause for row in status.rows] == [MissCause.MODEL_VERSION]


def healthy(seed: int) -> list[tuple[str, Body]]:
    """Tenants with system prompts of their own, conversations that grow, and questions that nothing else resembles."""
    chance = random.Random(seed)

    def text(count: int) -> str:
        return prose(chance, count)

    tools = [[tool(chance.choice(WORDS)) for _ in range(3)] for _ in range(2)]
    tenants = ("one", "two")
    prompts = [(tenant, system(text(chance.randint(8, 40))), tools[k % 2]) for k in range(4) for tenant in tenants]
    talks: list[tuple[str, Body, list[Body], list[Body]]] = [
        (tenant, lead, has, []) for tenant, lead, has in prompts for _ in range(3)
    ]
    asked: list[tuple[str, Body]] = []
    for _ in range(150):
        kind = chance.random()
        if kind < 0.7:
            tenant, lead, has, talk = chance.choice(talks)
            talk.append(user(text(chance.randint(2, 30))))
            more = {"tools": has} if len(lead["content"]) % 2 else {}
            asked.append((tenant, {"messages": [lead, *talk], **more}))
            talk.append({"role": "assistant", "content": text(chance.randint(2, 20))})
        elif kind < 0.85:
            tenant, lead, _ = chance.choice(prompts)
            asked.append((tenant, {"messages": [lead, user(text(6)), user(f"It is 2026-11-{chance.randint(10, 30)}")]}))
        else:
            asked.append((chance.choice(tenants), {"messages": [user(text(chance.randint(10, 60)))]}))
    return asked


async def test_a_healthy_mix_is_silent(tmp_path: Path) -> None:
    """Tenants, growing conversations, system prompts shared by many and one-off prompts give no finding at all."""
    keys = {name: new_key(name) for name in ("one", "two")}
    async with engines(2) as found:
        declaration = declare({"p": pool(*found)}, tenants={"one": {}, "two": {}, "default": {}})
        records = tuple(record for _, record in keys.values())
        async with RunningGateway(tmp_path, declaration, keys=records) as gateway:
            await gateway.wait_ready(endpoints=2)
            async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
                for tenant, body in healthy(6):
                    await ask(gateway, [body], keys[tenant][0], client)
            status = await misses(gateway)
    assert status.rows == ()
    assert status.answers == 150
    assert status.examined == 150
    assert status.explained <= 3


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    """With `routing.explain_misses: false` no prompt of the model is looked at."""
    models = {"m": {"routing": {"explain_misses": False}}}
    async with engines(1) as found, RunningGateway(tmp_path, declare({"p": pool(*found)}, models=models)) as gateway:
        await gateway.wait_ready(endpoints=1)
        await ask(gateway, timestamp())
        status = await misses(gateway)
    assert (status.answers, status.examined, status.kept_bytes, status.rows) == (0, 0, 0, ())
