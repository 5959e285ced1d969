"""What callers may never say to an engine, in no spelling: where KV comes from, which slot or rank is used."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

from headrace.domain.endpoint import EngineKind
from headrace.engines.dialects import CARRIERS, OWNED_EVERYWHERE
from headrace.engines.registry import driver_for

ENGINES = [kind.value for kind in EngineKind]
TICKET = {"do_remote_prefill": True, "remote_block_ids": [1], "remote_engine_id": "e", "remote_host": "h"}
VALUES: dict[str, Any] = {
    "kv_transfer_params": TICKET,
    "kv_transfer_anything": TICKET,
    "bootstrap_room": 7,
    "bootstrap_host": ["127.0.0.1"],
    "bootstrap_port": 8998,
    "bootstrap_anything": None,
    "disagg_prefill_dp_rank": 0,
    "disaggregated_params": {"request_type": "generation_only", "ctx_request_id": 1, "opaque_state": "AA=="},
    "id_slot": 0,
    "slot_id": 0,
    "data_parallel_rank": 1,
    "ec_transfer_params": {"a": 1},
    "cache_salt": "another-tenant",
    "session_id": "s",
    "extra_args": {"kv_transfer_params": TICKET},
    "extra_body": {"kv_transfer_params": TICKET},
}
OPENED = (*CARRIERS, "my_own", "logits_processors", "kv_transfer_params", "bootstrap_room", "id_slot", "extra_body")
"""What an operator might open to callers, by mistake or not."""


@pytest.fixture
async def gateway(tmp_path: Path, engine: ScriptedEngine) -> AsyncGenerator[RunningGateway]:
    """One model for each engine, named like it; everything is opened that can be."""
    pools = {name: remote_pool(engine.url, engine=name, model=name) for name in ENGINES}
    fields = {"unknown_fields": "forward", "allow_gated": list(OPENED)}
    declaration = declare(pools, models={name: {} for name in ENGINES}, gateway={"fields": fields})
    async with RunningGateway(tmp_path, declaration) as running:
        await running.wait_ready(endpoints=len(ENGINES))
        yield running


def body_at(path: str, model: str) -> dict[str, Any]:
    text = {"/v1/completions": {"prompt": "hi"}, "/v1/embeddings": {"input": "hi"}, "/v1/responses": {"input": "hi"}}
    body = {"model": model, **text.get(path, {"messages": [{"role": "user", "content": "hi"}]})}
    return (
        body if path == "/v1/embeddings" else {**body, "max_output_tokens" if "responses" in path else "max_tokens": 3}
    )


def spellings(name: str, value: Any) -> list[dict[str, Any]]:
    """An owned field as itself, and wherever an engine or a client's library might take it from."""
    nested = {name: value}
    return [
        nested,
        {"extra_body": nested},
        {"extra_body": {"extra_body": nested}},
        {"vllm_xargs": nested},
        {"custom_params": {"deep": [{"er": nested}]}},
        {"mm_processor_kwargs": nested},
        {"chat_template_kwargs": nested},
        {"my_own": nested},
        {"logits_processors": [nested]},
        {"sampling_params": {"extra_args": nested}},
        {"nvext": [[nested]]},
    ]


@pytest.mark.parametrize("model", ENGINES)
async def test_no_spelling_of_an_owned_field_reaches_an_engine(
    gateway: RunningGateway, engine: ScriptedEngine, model: str
) -> None:
    """Refused by name at every API, for every engine, whatever the operator opens: on vLLM a forged ticket gives the
    text of somebody else's prompt."""
    for path in sorted(driver_for(EngineKind(model)).dialect.paths):
        for name, value in VALUES.items():
            is_whole = name == "kv_transfer_params" or (path == "/v1/chat/completions" and model == "vllm")
            for fields in spellings(name, value) if is_whole else ({name: value}, {"extra_body": {name: value}}):
                answer = await ask(gateway.port, post({**body_at(path, model), **fields}, gateway.key, path))
                assert (answer.status, answer.code) == (400, "unsupported_parameter"), (path, fields, answer.body)
    assert engine.seen == []


def test_all_that_is_owned_everywhere_is_tried() -> None:
    """A name that is added to the list of owned fields is among those that are tried here, or is not about KV."""
    assert set(OWNED_EVERYWHERE) <= set(VALUES) | {"custom_logit_processor", "priority", "request_id", "rid"}


async def test_escapes_and_repetition_hide_no_owned_field(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """JSON can write a name in many ways, and twice; what an engine would read is what is looked at."""
    ticket = json.dumps(TICKET)
    for member in (
        rf'"kv\u005ftransfer_params":{ticket}',
        rf'"\u006bv_transfer_params":{ticket}',
        rf'"my_own":{{"kv\u005ftransfer_params":{ticket}}}',
        rf'"my_own":{{"a":1,"kv_transfer_params":{ticket},"kv_transfer_params":null}}',
        rf'"my_own":1,"my\u005fown":{{"kv_transfer_params":{ticket}}}',
        r'"bootstrap\u005froom":1',
    ):
        body = b'{%b,"model":"vllm","messages":[{"role":"user","content":"hi"}]}' % member.encode()
        answer = await ask(gateway.port, post(body, gateway.key))
        assert answer.status == 400, (member, answer.body)
    assert engine.seen == []


async def test_headers_and_queries_of_callers_reach_no_engine(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """Some engines take a rank or a name from headers: an engine gets the gateway's own alone."""
    for model in ENGINES:
        request = post(
            body_at("/v1/chat/completions", model),
            gateway.key,
            x_data_parallel_rank="1",
            x_kv_transfer_params="{}",
            x_request_id="mine",
            x_session_id="s",
        )
        assert (await ask(gateway.port, request)).status == 200
    for seen in engine.seen:
        assert not {"x-data-parallel-rank", "x-kv-transfer-params", "x-session-id"} & seen.headers.keys()
        assert "mine" not in seen.headers.get("x-request-id", "")


@pytest.mark.parametrize("depth", [300, 900, 980, 1000, 100_000])
async def test_depth_hides_nothing_and_breaks_nothing(
    gateway: RunningGateway, engine: ScriptedEngine, depth: int
) -> None:
    """What is nested too deeply to be looked at is refused, and is no fault of ours."""
    ticket = json.dumps({"kv_transfer_params": TICKET}).encode()
    body = b'{"model":"vllm","my_own":' + b"[" * depth + ticket + b"]" * depth + b',"messages":[]}'
    answer = await ask(gateway.port, post(body, gateway.key))
    assert (answer.status, answer.code) in ((400, "unsupported_parameter"), (400, "invalid_request"))
    assert engine.seen == []
