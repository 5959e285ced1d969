"""What callers write reaches each engine in its own words or is refused by name; what the gateway owns it keeps."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.raw_client import RawAnswer, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import FieldRule
from headrace.engines.registry import driver_for

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
ENGINES = [kind.value for kind in EngineKind]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GBNF = 'root ::= "a" | "b"'
LARK = 'start: "a" | "b"'
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
TEXT_FORMAT = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}
TAGS = {"type": "structural_tag", "structures": [], "triggers": []}

WORDS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    # a schema, in everybody's words
    ("vllm", CHAT, {"guided_json": SCHEMA}, {"response_format": SCHEMA_FORMAT}),
    ("vllm", CHAT, {"json_schema": json.dumps(SCHEMA)}, {"response_format": SCHEMA_FORMAT}),
    ("vllm", RESPONSES, {"structured_outputs": {"json": SCHEMA}}, {"text": TEXT_FORMAT}),
    ("vllm", RESPONSES, {"text": TEXT_FORMAT}, {"text": TEXT_FORMAT}),
    ("sglang", CHAT, {"structured_outputs": {"json": SCHEMA}}, {"response_format": SCHEMA_FORMAT}),
    ("sglang", COMPLETIONS, {"guided_json": SCHEMA}, {"response_format": SCHEMA_FORMAT}),
    (
        "sglang",
        MESSAGES,
        {"json_schema": SCHEMA},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    ("tensorrt-llm", CHAT, {"guided_json": SCHEMA}, {"response_format": SCHEMA_FORMAT}),
    ("llamacpp", CHAT, {"guided_json": SCHEMA}, {"response_format": SCHEMA_FORMAT}),
    ("llamacpp", COMPLETIONS, {"response_format": SCHEMA_FORMAT}, {"json_schema": SCHEMA}),
    ("llamacpp", RESPONSES, {"text": TEXT_FORMAT}, {"response_format": SCHEMA_FORMAT}),
    ("openai", CHAT, {"guided_json": SCHEMA}, {"response_format": SCHEMA_FORMAT}),
    # what is in the engine's words already stays as it is
    ("vllm", CHAT, {"structured_outputs": {"regex": "[0-9]", "disable_any_whitespace": True}}, {}),
    ("vllm", CHAT, {"structured_outputs": {"grammar": LARK}}, {}),
    ("vllm", CHAT, {"response_format": TAGS}, {}),
    ("sglang", CHAT, {"ebnf": "root ::= x_y"}, {}),
    ("llamacpp", CHAT, {"grammar": "root ::= my-rule"}, {}),
    ("tensorrt-llm", CHAT, {"response_format": {"type": "regex", "regex": "[0-9]"}}, {}),
    # the rest
    ("vllm", CHAT, {"guided_choice": ["a", "b"]}, {"structured_outputs": {"choice": ["a", "b"]}}),
    ("vllm", CHAT, {"regex": "[0-9]"}, {"structured_outputs": {"regex": "[0-9]"}}),
    ("vllm", CHAT, {"grammar": GBNF}, {"structured_outputs": {"grammar": GBNF}}),
    ("vllm", CHAT, {"response_format": {"type": "ebnf", "ebnf": GBNF}}, {"structured_outputs": {"grammar": GBNF}}),
    ("sglang", CHAT, {"guided_choice": ["a.b", "c|d"]}, {"regex": r"(a\.b|c\|d)"}),
    ("sglang", CHAT, {"structured_outputs": {"regex": "[0-9]"}}, {"regex": "[0-9]"}),
    ("sglang", CHAT, {"guided_grammar": GBNF}, {"ebnf": GBNF}),
    ("tensorrt-llm", CHAT, {"ebnf": GBNF}, {"response_format": {"type": "ebnf", "ebnf": GBNF}}),
    ("tensorrt-llm", CHAT, {"guided_choice": ["a"]}, {"response_format": {"type": "regex", "regex": "(a)"}}),
    ("llamacpp", CHAT, {"guided_choice": ['a"', "b"]}, {"grammar": 'root ::= "a\\"" | "b"'}),
    ("llamacpp", RESPONSES, {"ebnf": GBNF}, {"grammar": GBNF}),
    ("llamacpp", COMPLETIONS, {"response_format": {"type": "json_object"}}, {"json_schema": {"type": "object"}}),
]
"""Engine, path, the caller's fields, the fields that the engine gets in their place (none: the caller's stay)."""

REFUSALS: list[tuple[str, str, dict[str, Any], str]] = [
    ("llamacpp", CHAT, {"regex": "[0-9]"}, "Engines that could: sglang, tensorrt-llm, vllm"),
    ("llamacpp", CHAT, {"response_format": TAGS}, "Engines that could: sglang, tensorrt-llm, vllm"),
    ("llamacpp", MESSAGES, {"output_config": TEXT_FORMAT}, "Engines that could: sglang, vllm"),
    ("llamacpp", CHAT, {"guided_grammar": LARK}, "line 1 of guided_grammar"),
    ("sglang", CHAT, {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "Engines that could: vllm"),
    ("sglang", CHAT, {"structured_outputs": {"grammar": LARK}}, "line 1 of structured_outputs.grammar"),
    ("sglang", RESPONSES, {"regex": "a"}, "Engines that could: vllm"),
    ("vllm", CHAT, {"grammar": 'root ::= "a"{2}'}, "line 1 of grammar"),
    ("vllm", MESSAGES, {"guided_choice": ["a"]}, "a choice"),
    ("openai", CHAT, {"regex": "a"}, "declare the pool's engine"),
    ("vllm", CHAT, {"guided_decoding_backend": "outlines"}, "structured_output.backend"),
]
"""Engine, path, the caller's fields, what the refusal says."""


def pool_of(engine: str, url: str, **keys: Any) -> dict[str, Any]:
    more = {"structured_output": {"backend": "xgrammar"}} if engine == "tensorrt-llm" else {}
    return remote_pool(url, **{"engine": engine, "model": engine, "served_model": f"served-{engine}", **more, **keys})


@pytest.fixture
async def engines(tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    """One model for each engine, each named like it."""
    pools = {name: pool_of(name, engine.url) for name in ENGINES}
    async with RunningGateway(tmp_path, declare(pools, models={name: {} for name in ENGINES})) as running:
        await running.wait_ready(endpoints=len(ENGINES))
        yield running


def body_for(path: str, model: str, **fields: Any) -> dict[str, Any]:
    """The smallest request of a path."""
    if path in (CHAT, MESSAGES):
        return {**chat(model=model), **({"max_tokens": 9} if path == MESSAGES else {}), **fields}
    return {"model": model, "prompt" if path == COMPLETIONS else "input": "hi", **fields}


async def send(gateway: RunningGateway, path: str, model: str, **fields: Any) -> RawAnswer:
    return await ask(gateway.port, post(body_for(path, model, **fields), gateway.key, path))


async def test_a_constraint_reaches_each_engine_in_its_own_words(
    engines: RunningGateway, engine: ScriptedEngine
) -> None:
    """Any dialect of structured output, for any engine: what the engine would ignore is replaced by what it heeds."""
    for name, path, fields, expected in WORDS:
        answer = await send(engines, path, name, **fields)
        assert answer.status == 200, (name, path, fields, answer.body)
        seen = engine.seen[-1].json
        wanted = {**body_for(path, f"served-{name}"), **(expected or fields)}
        assert seen == wanted, (name, path, fields)


async def test_a_constraint_that_an_engine_cannot_keep_to_is_refused(
    engines: RunningGateway, engine: ScriptedEngine
) -> None:
    """By name, with the reason or the engines that could; nothing is sent that would be ignored."""
    for name, path, fields, says in REFUSALS:
        answer = await send(engines, path, name, **fields)
        assert (answer.status, answer.code) == (400, "unsupported_parameter"), (name, path, fields, answer.body)
        assert says in answer.json["error"]["message"]
        assert answer.json["error"]["param"] in fields
    two = await send(engines, CHAT, "vllm", regex="a", guided_choice=["a"])
    assert (two.status, two.code) == (400, "invalid_request")
    assert engine.seen == []


async def test_trtllm_without_a_backend_gets_no_constraint(tmp_path: Path, engine: ScriptedEngine) -> None:
    """trtllm-serve ignores response_format unless a backend is on: the pool must declare it, and says how."""
    pool = pool_of("tensorrt-llm", engine.url, structured_output={})
    async with RunningGateway(tmp_path, declare({"p": pool}, models={"tensorrt-llm": {}})) as gateway:
        await gateway.wait_ready()
        answer = await send(gateway, CHAT, "tensorrt-llm", response_format={"type": "json_object"})
        assert (answer.status, answer.code) == (400, "unsupported_parameter")
        assert "structured_output.backend" in answer.json["error"]["message"]
        assert engine.seen == []


async def test_only_pools_that_can_keep_to_a_constraint_are_used(tmp_path: Path) -> None:
    """With vLLM and llama.cpp behind one model, a regular expression goes to vLLM, a choice to either in its words."""
    async with ScriptedEngine() as vllm, ScriptedEngine() as llamacpp:
        pools = {"v": pool_of("vllm", vllm.url, model="m"), "l": pool_of("llamacpp", llamacpp.url, model="m")}
        async with RunningGateway(tmp_path, declare(pools)) as gateway:
            await gateway.wait_ready(endpoints=2)
            for _ in range(4):
                assert (await send(gateway, CHAT, "m", regex="a")).status == 200
            assert (len(vllm.seen), len(llamacpp.seen)) == (4, 0)
            for _ in range(6):
                assert (await send(gateway, CHAT, "m", guided_choice=["a"])).status == 200
            assert {"structured_outputs", "grammar"} <= {
                name for seen in vllm.seen + llamacpp.seen for name in seen.json
            }
            assert not any("guided_choice" in seen.json for seen in vllm.seen + llamacpp.seen)


OWNED = (
    "kv_transfer_params bootstrap_host bootstrap_port bootstrap_room bootstrap_anything disaggregated_params id_slot "
    "cache_salt priority rid request_id custom_logit_processor data_parallel_rank ec_transfer_params extra_body"
).split()


@pytest.mark.parametrize("model", ENGINES)
async def test_owned_fields_reach_no_engine(engines: RunningGateway, engine: ScriptedEngine, model: str) -> None:
    """On every path and for every engine; some of them would crash one."""
    owned = [name for name, rule in driver_for(EngineKind(model)).dialect.fields.items() if rule is FieldRule.OWNED]
    paths = sorted(driver_for(EngineKind(model)).dialect.paths - {"/v1/embeddings"})
    for name in {*OWNED, *owned}:
        for path in paths if name in OWNED else (CHAT,):
            answer = await send(engines, path, model, **{name: {"a": 1}})
            assert (answer.status, answer.code) == (400, "unsupported_parameter"), (path, name)
            assert f"field {name} " in answer.json["error"]["message"]
    assert engine.seen == []


async def test_owned_fields_are_not_smuggled_in(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Nor inside an object that an engine hands on: vLLM keeps kv_transfer_params where vllm_xargs go."""
    gateway_section = {"fields": {"allow_gated": ["vllm_xargs", "custom_params"]}}
    declaration = declare({"p": pool_of("vllm", engine.url, model="m")}, gateway=gateway_section)
    async with RunningGateway(tmp_path, declaration) as gateway:
        await gateway.wait_ready()
        for fields in (
            {"vllm_xargs": {"kv_transfer_params": {"do_remote_prefill": True}}},
            {"custom_params": [{"deep": {"bootstrap_room": 1}}]},
            {"nobody_knows_this": {"sampling": {"cache_salt": "x"}}},
        ):
            answer = await send(gateway, CHAT, "m", **fields)
            assert (answer.status, answer.code) == (400, "unsupported_parameter"), fields
        assert engine.seen == []
        schema = {"type": "object", "properties": {"priority": {"type": "integer"}}}
        harmless = {"vllm_xargs": {"a": 1}, "guided_json": schema, "metadata": {"rid": "mine"}}
        assert (await send(gateway, CHAT, "m", **harmless)).status == 200


async def test_each_tenant_has_a_part_of_the_prefix_cache(tmp_path: Path) -> None:
    """With isolation declared, engines get a salt that only this instance can make; its secret outlives the worker."""
    red_key, red = new_key("red")
    blue_key, blue = new_key("blue")
    async with ScriptedEngine() as vllm, ScriptedEngine() as plain:
        isolated = {"prefix_cache": {"tenant_isolation": True}}
        pools = {"v": pool_of("vllm", vllm.url, **isolated), "s": pool_of("sglang", plain.url)}
        declaration = declare(pools, models={"vllm": {}, "sglang": {}}, tenants={"red": {}, "blue": {}, "default": {}})
        salts: dict[str, set[Any]] = {red_key: set(), blue_key: set()}
        for _ in range(2):
            async with RunningGateway(tmp_path, declaration, (red, blue)) as gateway:
                await gateway.wait_ready(endpoints=2)
                for key in (red_key, blue_key):
                    for path in (CHAT, COMPLETIONS, RESPONSES, MESSAGES):
                        answer = await ask(gateway.port, post(body_for(path, "vllm"), key, path))
                        assert answer.status == 200
                        salts[key].add(vllm.seen[-1].json.get("cache_salt"))
                await ask(gateway.port, post(body_for(CHAT, "sglang"), red_key, CHAT))
                assert "cache_salt" not in plain.seen[-1].json
        secret = (tmp_path / "cache-salt.secret").read_bytes()
        assert salts[red_key] == {hmac.new(secret, b"red", hashlib.sha256).hexdigest()}
        assert salts[blue_key] == {hmac.new(secret, b"blue", hashlib.sha256).hexdigest()}
        assert (tmp_path / "cache-salt.secret").stat().st_mode & 0o077 == 0


async def test_where_tenants_cannot_be_kept_apart_nothing_is_served(tmp_path: Path, engine: ScriptedEngine) -> None:
    """SGLang has no salt at /v1/messages: an isolated pool does not answer there, and says why."""
    isolated = {"prefix_cache": {"tenant_isolation": True}}
    pools = {"s": pool_of("sglang", engine.url, **isolated)}
    async with RunningGateway(tmp_path, declare(pools, models={"sglang": {}})) as gateway:
        await gateway.wait_ready()
        answer = await send(gateway, MESSAGES, "sglang")
        assert (answer.status, answer.code) == (404, "route_not_found")
        assert "prefix_cache.tenant_isolation" in answer.json["error"]["message"]
        assert (await send(gateway, CHAT, "sglang")).status == 200


async def test_engines_know_requests_by_an_id_of_ours(engines: RunningGateway, engine: ScriptedEngine) -> None:
    """vLLM names requests after X-Request-Id: two callers with one id do not meet there."""
    same = {"x_request_id": "same"}
    requests = [post(body_for(CHAT, "vllm"), engines.key, CHAT, **same) for _ in range(5)]
    answers = await asyncio.gather(*(ask(engines.port, request) for request in requests))
    assert {answer.headers["x-request-id"] for answer in answers} == {"same"}
    ids = [seen.headers["x-request-id"] for seen in engine.seen]
    assert len(set(ids)) == 5
    assert all("same" not in engine_id and engine_id.replace("-", "").isalnum() for engine_id in ids)


async def test_the_gateway_checks_the_models_name_and_sends_the_served_one(
    engines: RunningGateway, engine: ScriptedEngine
) -> None:
    """SGLang answers to any name."""
    assert (await send(engines, CHAT, "served-sglang")).code == "model_not_found"
    assert engine.seen == []
    await send(engines, CHAT, "sglang")
    assert engine.seen[0].json["model"] == "served-sglang"


@pytest.mark.parametrize("model", ENGINES)
async def test_template_switches_pass_and_template_parameters_do_not(
    engines: RunningGateway, engine: ScriptedEngine, model: str
) -> None:
    """Reasoning can be switched on and off; the template, the messages and the tokenizer's work stay the operator's."""
    passing = {"enable_thinking": False, "reasoning_effort": "low"}
    assert (await send(engines, CHAT, model, chat_template_kwargs=passing)).status == 200
    assert engine.seen[-1].json["chat_template_kwargs"] == passing
    for arguments in ({"chat_template": "x"}, {"tokenize": False}, {"my_own": 1}, {"thinking": {"deep": 1}}):
        answer = await send(engines, CHAT, model, chat_template_kwargs=arguments)
        assert (answer.status, answer.code) == (400, "unsupported_parameter"), arguments
    assert len(engine.seen) == 1


async def test_an_operator_may_open_the_template_but_never_replace_it(tmp_path: Path, engine: ScriptedEngine) -> None:
    """allow_gated lets own arguments through, and still none that replaces the template itself."""
    gateway_section = {"fields": {"allow_gated": ["chat_template_kwargs"]}}
    declaration = declare({"p": pool_of("vllm", engine.url, model="m")}, gateway=gateway_section)
    async with RunningGateway(tmp_path, declaration) as gateway:
        await gateway.wait_ready()
        assert (await send(gateway, CHAT, "m", chat_template_kwargs={"my_own": [1]})).status == 200
        for key in ("chat_template", "tokenize", "messages"):
            answer = await send(gateway, CHAT, "m", chat_template_kwargs={key: "x"})
            assert (answer.status, answer.code) == (400, "unsupported_parameter")


BEGUN = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


async def test_a_continuation_is_asked_for_in_each_engines_words(
    engines: RunningGateway, engine: ScriptedEngine
) -> None:
    """Both flags for vLLM and llama.cpp, one for SGLang; and what llama.cpp repeats is taken off."""
    expected = {
        "vllm": {"continue_final_message": True, "add_generation_prompt": False},
        "llamacpp": {"continue_final_message": True, "add_generation_prompt": False},
        "sglang": {"continue_final_message": True},
    }
    flags = {"continue_final_message", "add_generation_prompt"}
    for model, wanted in expected.items():
        answer = await send(engines, CHAT, model, messages=BEGUN, continue_final_message=True)
        assert answer.status == 200, (model, answer.body)
        assert {name: value for name, value in engine.seen[-1].json.items() if name in flags} == wanted
        text = answer.json["choices"][0]["message"]["content"]
        assert text == (" there friend" if model == "llamacpp" else "hello there friend")


async def test_a_continuation_that_would_go_wrong_is_refused(engines: RunningGateway, engine: ScriptedEngine) -> None:
    """Unproved, constrained, or taken for the user's words: refused by name."""
    asked = {"messages": BEGUN, "continue_final_message": True}
    for model, path, fields in (
        ("tensorrt-llm", CHAT, asked),
        ("openai", CHAT, asked),
        ("vllm", MESSAGES, {"messages": BEGUN}),
        ("sglang", CHAT, {"messages": BEGUN}),
        ("vllm", CHAT, {**asked, "regex": "a"}),
        ("llamacpp", CHAT, {**asked, "guided_json": SCHEMA}),
        ("vllm", CHAT, {**asked, "reasoning_effort": "low"}),
    ):
        answer = await send(engines, path, model, **fields)
        assert (answer.status, answer.code) == (400, "unsupported_parameter"), (model, fields, answer.body)
    for fields in (
        {**asked, "add_generation_prompt": True},
        {"continue_final_message": True},
        {"add_generation_prompt": False},
    ):
        answer = await send(engines, CHAT, "vllm", **fields)
        assert (answer.status, answer.code) == (400, "invalid_request"), fields
    assert engine.seen == []
    assert (await send(engines, CHAT, "vllm", messages=BEGUN)).status == 200, "a new turn, as in OpenAI's API"
