"""What makes each dialect that engine's own: its errors, metrics, probes and endings, read by the real drivers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.contract.checks import probe
from tests.harness.simulated_engine import DRIVERS, MODEL, SimulatedProcess, serving, simulated

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.engines.contract import ProbeReply, ProbeVerdict
from headrace.engines.detection import DETECTION_PATHS, detect
from headrace.engines.llamacpp.metrics import METRICS as LLAMACPP_METRICS
from headrace.engines.load import read_load
from headrace.engines.metrics import Appears, MetricTable, Purpose, is_within
from headrace.engines.registry import driver_for
from headrace.engines.sglang.metrics import METRICS as SGLANG_METRICS
from headrace.engines.simulated.config import DialectKind, Role, TransferLoss
from headrace.engines.simulated.text import expected_text
from headrace.engines.tensorrt_llm.metrics import METRICS as TENSORRT_LLM_METRICS
from headrace.engines.vllm.metrics import METRICS as VLLM_METRICS

CHAT = [{"role": "user", "content": "Tell me a story."}]
ASKED = {"model": MODEL, "messages": CHAT}
TABLES = {
    DialectKind.VLLM: VLLM_METRICS,
    DialectKind.SGLANG: SGLANG_METRICS,
    DialectKind.TENSORRT_LLM: TENSORRT_LLM_METRICS,
    DialectKind.LLAMACPP: LLAMACPP_METRICS,
}


@pytest.mark.parametrize("dialect", list(DialectKind))
async def test_headrace_takes_each_dialect_for_its_engine(dialect: DialectKind):
    """What `headrace up --endpoint` asks is answered so that the engine is known, with model and context."""
    async with serving(simulated(dialect)) as (_, client):
        replies: dict[str, ProbeReply] = {}
        for path in DETECTION_PATHS:
            answer = await client.get(path)
            replies[path] = ProbeReply(status=answer.status_code, body=answer.content)
        found = detect(replies)
        assert found.engine is DRIVERS[dialect]
        assert found.models == (MODEL,)
        assert dict(found.context_tokens) == {MODEL: 2048}


@pytest.mark.parametrize("dialect", list(DialectKind))
async def test_a_prompt_that_is_too_long_is_one_error_with_both_numbers(dialect: DialectKind):
    """Every engine's words for it are translated to context_too_long by its driver, streamed or not."""
    driver = driver_for(DRIVERS[dialect])
    async with serving(simulated(dialect)) as (_, client):
        for is_stream in (False, True):
            asked = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 20_000}], "stream": is_stream}
            answer = await client.post("/v1/chat/completions", json=asked)
            error = driver.translate_error(answer.status_code, answer.content)
            assert (answer.status_code, error.code) == (400, ErrorCode.CONTEXT_TOO_LONG)
            assert "2048" in error.message
            assert ("2049" if dialect is DialectKind.VLLM else "5007") in error.message, "vLLM stops counting"


@pytest.mark.parametrize(
    ("dialect", "fields", "code"),
    [
        (DialectKind.VLLM, {"temperature": "hot"}, ErrorCode.INVALID_REQUEST),
        (DialectKind.VLLM, {"model": "other"}, ErrorCode.ENGINE_REFUSED),
        (DialectKind.VLLM, {"max_tokens": 5000}, ErrorCode.CONTEXT_TOO_LONG),
        (DialectKind.SGLANG, {"temperature": "hot"}, ErrorCode.INVALID_REQUEST),
        (DialectKind.SGLANG, {"max_tokens": 5000}, ErrorCode.CONTEXT_TOO_LONG),
        (DialectKind.SGLANG, {"regex": "("}, ErrorCode.INVALID_REQUEST),
        (DialectKind.TENSORRT_LLM, {"temperature": "hot"}, ErrorCode.INVALID_REQUEST),
        (DialectKind.TENSORRT_LLM, {"no_such_field": 1}, ErrorCode.INVALID_REQUEST),
        (DialectKind.LLAMACPP, {"temperature": "hot"}, ErrorCode.INVALID_REQUEST),
        (DialectKind.LLAMACPP, {"grammar": "nonsense"}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refusals_are_translated(dialect: DialectKind, fields: dict[str, Any], code: ErrorCode):
    """The engine's error answer becomes the code of our table."""
    async with serving(simulated(dialect)) as (_, client):
        answer = await client.post("/v1/chat/completions", json={**ASKED, **fields})
        assert answer.status_code >= 400
        assert driver_for(DRIVERS[dialect]).translate_error(answer.status_code, answer.content).code is code


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (DialectKind.VLLM, {"guided_choice": ["a"], "regex": "z", "json_schema": {}, "grammar": "x"}),
        (DialectKind.SGLANG, {"model": "anything", "structured_outputs": {"choice": ["a"]}, "guided_regex": "z"}),
        (DialectKind.LLAMACPP, {"model": "anything", "regex": "z", "structured_outputs": {"choice": ["a"]}}),
    ],
)
async def test_fields_of_other_engines_do_nothing(dialect: DialectKind, fields: dict[str, Any]):
    """They are neither refused nor applied: why headrace translates structured output by engine."""
    async with serving(simulated(dialect)) as (_, client):
        answer = await client.post("/v1/chat/completions", json={**ASKED, **fields, "max_tokens": 3})
        assert answer.json()["choices"][0]["message"]["content"] == expected_text(MODEL, CHAT, 3)


@pytest.mark.parametrize(
    ("dialect", "fields", "made"),
    [
        (DialectKind.VLLM, {"structured_outputs": {"choice": ["yes", "no"]}}, "yes"),
        (DialectKind.VLLM, {"structured_outputs": {"regex": "[0-9]{3}"}}, "000"),
        (DialectKind.VLLM, {"structured_outputs": {"json": {"type": "object"}}}, "{}"),
        (DialectKind.SGLANG, {"regex": "ab+"}, "ab"),
        (DialectKind.SGLANG, {"ebnf": 'root ::= "yes" | "no"'}, "yes"),
        (DialectKind.SGLANG, {"json_schema": '{"const": 7}'}, "7"),
        (DialectKind.TENSORRT_LLM, {"response_format": {"type": "regex", "regex": "x"}}, "x"),
        (DialectKind.TENSORRT_LLM, {"response_format": {"type": "json", "schema": {"const": 1}}}, "1"),
        (DialectKind.LLAMACPP, {"grammar": 'root ::= "yes" | "no"'}, "yes"),
        (DialectKind.LLAMACPP, {"json_schema": {"const": [1]}}, "[1]"),
    ],
)
async def test_each_engines_own_structured_output_works(dialect: DialectKind, fields: dict[str, Any], made: str):
    """The fields that its own documentation names are applied."""
    async with serving(simulated(dialect)) as (_, client):
        answer = await client.post("/v1/chat/completions", json={**ASKED, **fields})
        assert answer.json()["choices"][0]["message"]["content"] == made


async def test_trtllm_without_a_guided_backend_ignores_the_schema():
    """The answer is plain text, with status 200: nobody is told."""
    async with serving(simulated(DialectKind.TENSORRT_LLM, has_guided_decoding=False)) as (_, client):
        wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
        answer = await client.post("/v1/chat/completions", json={**ASKED, "response_format": wanted, "max_tokens": 3})
        assert answer.json()["choices"][0]["message"]["content"] == expected_text(MODEL, CHAT, 3)


async def test_vllm_names_requests_after_the_header():
    """X-Request-Id becomes part of the answer's id."""
    async with serving(simulated()) as (_, client):
        asked = {**ASKED, "max_tokens": 1}
        answer = await client.post("/v1/chat/completions", json=asked, headers={"x-request-id": "abc"})
        assert answer.json()["id"] == "chatcmpl-abc"


# --- metrics ---


def names_at_start(table: MetricTable) -> set[str]:
    """The names that the driver wants to find on the newest version's page, whatever runs."""
    return {
        metric.name
        for metric in table.metrics
        if metric.appears is not Appears.WITH_FEATURE and is_within(table.version, metric.since, metric.until)
    }


@pytest.mark.parametrize("dialect", list(TABLES))
async def test_the_page_has_the_names_that_the_driver_reads(dialect: DialectKind):
    """Each metric that the driver's table expects is there, and the load is read from it as from the real one."""
    table = TABLES[dialect]
    async with serving(simulated(dialect)) as (_, client):
        answers = await asyncio.gather(
            *(client.post("/v1/chat/completions", json={**ASKED, "max_tokens": 8}) for _ in "ab")
        )
        page = (await client.get(table.path)).text
        lacking = {name for name in names_at_start(table) if f"# TYPE {name} " not in page}
        assert lacking == set()
        load = read_load(page, table)
        assert load.malformed == 0
        assert (load.running, load.waiting) == (0, 0)
        assert load.values[Purpose.TOKENS_OUT] == 16
        assert sum(answer.json()["usage"]["completion_tokens"] for answer in answers) == 16


async def test_metrics_that_are_off_by_default_are_off():
    """SGLang and TensorRT-LLM have no page unless asked; vLLM always has."""
    for dialect, path, status in (
        (DialectKind.SGLANG, "/metrics", 404),
        (DialectKind.TENSORRT_LLM, "/prometheus/metrics", 404),
        (DialectKind.VLLM, "/metrics", 200),
    ):
        async with serving(simulated(dialect, has_metrics=False)) as (_, client):
            assert (await client.get(path)).status_code == status


async def test_trtllms_plain_metrics_are_json_and_tritons_have_their_own_names():
    """`/metrics` of trtllm-serve is a queue of iteration statistics; Triton says nv_inference_*."""
    async with serving(simulated(DialectKind.TENSORRT_LLM)) as (_, client):
        await client.post("/v1/chat/completions", json={**ASKED, "max_tokens": 2})
        statistics = (await client.get("/metrics")).json()
        assert statistics[0]["kvCacheStats"]["tokensPerBlock"] == 32
        assert (await client.get("/metrics")).json() == []
    async with serving(simulated(DialectKind.TRITON)) as (_, client):
        assert (await client.get("/v2/health/ready")).status_code == 200
        body = {"text_input": "hello", "max_tokens": 4}
        answer = (await client.post(f"/v2/models/{MODEL}/generate", json=body)).json()
        assert answer["text_output"] == expected_text(MODEL, "hello", 4)
        page = (await client.get("/metrics")).text
        assert f'nv_inference_request_success{{model="{MODEL}",version="1"}} 1.0' in page
        assert 'nv_trt_llm_request_metrics{model="sim-model",request_type="active",version="1"} 0.0' in page


# --- life ---


async def verdicts_while_starting(engine: SimulatedProcess) -> list[ProbeVerdict]:
    """What the driver makes of the readiness path, from the start until it is ready; repeats left out."""
    driver = driver_for(engine.kind)
    seen: list[ProbeVerdict] = []
    await engine.start()
    async with asyncio.timeout(engine.start_bound_s):
        while not seen or seen[-1] is not ProbeVerdict.READY:
            verdict = driver.read_probe(await probe(engine.url + driver.ready_path))
            if not seen or verdict is not seen[-1]:
                seen.append(verdict)
            await asyncio.sleep(0.01)
    return seen


@pytest.mark.parametrize(
    ("dialect", "arguments", "shows_loading"),
    [
        (DialectKind.VLLM, (), False),
        (DialectKind.SGLANG, (), True),
        (DialectKind.TENSORRT_LLM, (), False),
        (DialectKind.TENSORRT_LLM, ("--answers-while-loading",), True),
        (DialectKind.LLAMACPP, (), True),
    ],
)
async def test_loading_looks_as_it_does_there(
    tmp_path: Path, dialect: DialectKind, arguments: tuple[str, ...], shows_loading: bool
):
    """vLLM refuses connections until it is ready; the others answer 503 for some of the time."""
    engine = SimulatedProcess(dialect, tmp_path, *arguments, "--fault", "slow-load:load_s=1")
    try:
        seen = await verdicts_while_starting(engine)
    finally:
        await engine.kill()
    assert (ProbeVerdict.LOADING in seen) == shows_loading
    assert seen[-1] is ProbeVerdict.READY


async def ending(
    engine: SimulatedProcess, during: Callable[[httpx.AsyncClient], Awaitable[None]]
) -> tuple[list[str], int]:
    """SIGTERM in the middle of a stream: its payloads, and the exit status. `during` acts between the two."""
    payloads: list[str] = []
    async with engine, httpx.AsyncClient(base_url=engine.url, timeout=30) as client:
        asked = {**ASKED, "stream": True, "max_tokens": 150, "ignore_eos": True}
        async with client.stream("POST", "/v1/chat/completions", json=asked) as response:
            lines = (line async for line in response.aiter_lines() if line)
            payloads.append(await anext(lines))
            await engine.terminate()
            await during(client)
            payloads += [line async for line in lines]
        return payloads, await engine.wait_gone()


async def _wait(_: httpx.AsyncClient) -> None:
    await asyncio.sleep(0)


async def test_vllm_cuts_streams_with_an_error_and_the_end_mark(tmp_path: Path):
    """SIGTERM without --shutdown-timeout: the stream looks ended, and is not."""
    payloads, status = await ending(SimulatedProcess(DialectKind.VLLM, tmp_path), _wait)
    assert payloads[-1] == "data: [DONE]"
    error = payloads[-2].removeprefix("data: ").encode()
    assert driver_for(EngineKind.VLLM).translate_error(200, error).code is ErrorCode.ENGINE_REFUSED
    assert not any('"finish_reason":"length"' in payload for payload in payloads)
    assert status == 0


async def test_a_draining_vllm_is_healthy_and_answers_500(tmp_path: Path):
    """With --shutdown-timeout the stream is finished, /health says 200, and new requests fail."""

    async def look(client: httpx.AsyncClient) -> None:
        async with asyncio.timeout(5):
            while (late := await client.post("/v1/chat/completions", json=ASKED)).status_code == 200:
                pass
        assert late.status_code == 500
        assert "cannot schedule new futures" in late.text
        assert (await client.get("/health")).status_code == 200

    engine = SimulatedProcess(DialectKind.VLLM, tmp_path, "--shutdown-timeout", "20", step_ms=10)
    payloads, status = await ending(engine, look)
    assert '"finish_reason":"length"' in payloads[-2]
    assert status == 0


async def test_a_draining_sglang_is_not_ready_and_goes_on_accepting(tmp_path: Path):
    """SIGTERM: /ready says 503 at once, and a new request is still served."""

    async def look(client: httpx.AsyncClient) -> None:
        async with asyncio.timeout(5):
            while (await client.get("/ready")).status_code == 200:
                pass
        late = await client.post("/v1/chat/completions", json={**ASKED, "max_tokens": 2})
        assert late.status_code == 200

    payloads, status = await ending(SimulatedProcess(DialectKind.SGLANG, tmp_path, step_ms=10), look)
    assert '"finish_reason":"length"' in payloads[-2]
    assert status == 0


@pytest.mark.parametrize("dialect", [DialectKind.TENSORRT_LLM, DialectKind.LLAMACPP])
async def test_the_others_stop_listening_and_finish(tmp_path: Path, dialect: DialectKind):
    """SIGTERM: new connections are refused, and the stream is finished."""

    async def look(_: httpx.AsyncClient) -> None:
        async with asyncio.timeout(5):
            while True:
                try:
                    async with httpx.AsyncClient(timeout=5) as another:
                        await another.get(engine.url + "/health")
                except httpx.ConnectError:
                    return

    engine = SimulatedProcess(dialect, tmp_path, step_ms=10)
    payloads, status = await ending(engine, look)
    assert '"finish_reason":"length"' in payloads[-2]
    assert status == 0


async def test_out_of_memory_at_the_start_is_in_the_log(tmp_path: Path):
    """The engine loads, fails and exits with 1, as a model that does not fit."""
    engine = SimulatedProcess(DialectKind.VLLM, tmp_path, "--fault", "oom")
    await engine.start()
    assert await engine.wait_gone() == 1
    assert "CUDA out of memory" in engine.log()


async def test_refused_connections_come_back(tmp_path: Path):
    """While the fault lasts nothing listens; then it does again."""
    async with SimulatedProcess(DialectKind.VLLM, tmp_path) as engine:
        await engine.set_faults({"kind": "refuse", "duration_s": 1.0})
        seen: list[ProbeVerdict] = []
        async with asyncio.timeout(15):
            while ProbeVerdict.DEAD not in seen or seen[-1] is not ProbeVerdict.READY:
                seen.append(driver_for(EngineKind.VLLM).read_probe(await probe(f"{engine.url}/health")))
                await asyncio.sleep(0.02)


async def test_forged_transfer_parameters_kill_a_vllm_as_they_do_there(tmp_path: Path):
    """`do_remote_prefill` without the rest ends the process: why callers may not send it."""
    async with SimulatedProcess(DialectKind.VLLM, tmp_path) as engine, httpx.AsyncClient() as client:
        asked = {**ASKED, "kv_transfer_params": {"do_remote_prefill": True}}
        with pytest.raises(httpx.TransportError):
            await client.post(f"{engine.url}/v1/chat/completions", json=asked)
        assert await engine.wait_gone() == -9


# --- prefill and decode apart ---


async def test_vllm_hands_kv_over(tmp_path: Path):
    """The prefill answer says where the KV is; the decode engine fetches it, says so in its metrics, and goes on."""
    prefill, decode = (simulated(role=role, kv_tokens=100_000) for role in (Role.PREFILL, Role.DECODE))
    messages = [{"role": "user", "content": "word " * 200}]
    asked = {"model": MODEL, "messages": messages, "max_tokens": 6}
    async with serving(prefill) as (holder, at_prefill), serving(decode) as (taker, at_decode):
        first = {**asked, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
        answer = (await at_prefill.post("/v1/chat/completions", json=first)).json()
        params = answer["kv_transfer_params"]
        assert params["do_remote_prefill"] is True
        assert holder.engine.load().kv_blocks_held > 0
        second = await at_decode.post("/v1/chat/completions", json={**asked, "kv_transfer_params": params})
        assert second.json()["choices"][0]["message"]["content"] == expected_text(MODEL, messages, 6)
        assert holder.engine.load().kv_blocks_held == 0
        assert taker.stats.transferred_tokens == params["remote_num_tokens"]
        page = (await at_decode.get("/metrics")).text
        assert 'vllm:nixl_xfer_time_seconds_count{engine="0",model_name="sim-model"} 1.0' in page
        again = await at_decode.post("/v1/chat/completions", json={**asked, "kv_transfer_params": params})
        assert again.status_code == 500, "KV can be fetched once"


@pytest.mark.parametrize(("policy", "status"), [(TransferLoss.FAIL, 500), (TransferLoss.RECOMPUTE, 200)])
async def test_lost_kv_follows_the_policy(policy: TransferLoss, status: int):
    """`fail` answers 500, `recompute` computes the prompt here."""
    prefill, decode = simulated(role=Role.PREFILL), simulated(role=Role.DECODE, transfer_loss=policy)
    async with serving(prefill) as (_, at_prefill), serving(decode) as (taker, at_decode):
        await at_prefill.post("/sim/faults", json=[{"kind": "kv-loss"}])
        first = {**ASKED, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        params = (await at_prefill.post("/v1/chat/completions", json=first)).json()["kv_transfer_params"]
        asked = {**ASKED, "max_tokens": 4, "kv_transfer_params": params}
        assert (await at_decode.post("/v1/chat/completions", json=asked)).status_code == status
        assert taker.stats.transfer_failures == 1


async def test_sglangs_legs_meet_by_their_room():
    """The same body to both at once: the prefill answers only when its KV was taken; a missing room is refused."""
    prefill, decode = (simulated(DialectKind.SGLANG, role=role) for role in (Role.PREFILL, Role.DECODE))
    async with serving(prefill) as (holder, at_prefill), serving(decode) as (taker, at_decode):
        asked = {**ASKED, "max_tokens": 5, "bootstrap_host": "127.0.0.1", "bootstrap_port": holder.port}
        assert (await at_decode.post("/v1/chat/completions", json=asked)).status_code == 400
        asked["bootstrap_room"] = 7
        late = asyncio.ensure_future(at_decode.post("/v1/chat/completions", json=asked))
        await asyncio.sleep(0.05)
        done = await asyncio.gather(at_prefill.post("/v1/chat/completions", json=asked), late)
        assert [answer.status_code for answer in done] == [200, 200]
        assert done[1].json()["choices"][0]["message"]["content"] == expected_text(MODEL, CHAT, 5)
        assert taker.stats.transferred_tokens > 0
        alone = asyncio.ensure_future(at_prefill.post("/v1/chat/completions", json={**asked, "bootstrap_room": 8}))
        _, waiting = await asyncio.wait([alone], timeout=0.3)
        assert waiting, "a prefill that nobody fetches from hangs"
        alone.cancel()


async def test_trtllm_hands_its_state_over():
    """The context answer carries disaggregated_params; the generation request gives them back."""
    context, generation = (simulated(DialectKind.TENSORRT_LLM, role=role) for role in (Role.PREFILL, Role.DECODE))
    async with serving(context) as (_, at_context), serving(generation) as (taker, at_generation):
        first = {
            **ASKED,
            "max_tokens": 5,
            "disaggregated_params": {"request_type": "context_only", "disagg_request_id": 9},
        }
        answer = (await at_context.post("/v1/chat/completions", json=first)).json()
        params = answer["choices"][0]["disaggregated_params"] | {"request_type": "generation_only"}
        asked = {**ASKED, "max_tokens": 5, "disaggregated_params": params}
        answer = (await at_generation.post("/v1/chat/completions", json=asked)).json()
        assert answer["choices"][0]["message"]["content"] == expected_text(MODEL, CHAT, 5)
        assert taker.stats.transferred_tokens > 0


async def test_llamacpps_slots_are_saved_and_restored(tmp_path: Path):
    """A slot's KV goes through a file to another engine, which then computes almost nothing."""
    one, two = (simulated(DialectKind.LLAMACPP, slot_dir=tmp_path, max_sequences=4) for _ in range(2))
    messages = [{"role": "user", "content": "word " * 100}]
    asked = {"messages": messages, "max_tokens": 3, "id_slot": 0}
    async with serving(one) as (_, first), serving(two) as (_, second):
        await first.post("/v1/chat/completions", json=asked)
        saved = (await first.post("/slots/0?action=save", json={"filename": "s.bin"})).json()
        restored = (await second.post("/slots/2?action=restore", json={"filename": "s.bin"})).json()
        assert saved["n_saved"] == restored["n_restored"] > 100
        answer = (await second.post("/v1/chat/completions", json={**asked, "id_slot": 2})).json()
        assert answer["choices"][0]["message"]["content"] == expected_text(MODEL, messages, 3)
        assert answer["timings"]["prompt_n"] <= 2
        for name in ("../x", ".hidden", "", "missing.bin"):
            answer = await second.post("/slots/1?action=restore", json={"filename": name})
            assert answer.status_code == 400
