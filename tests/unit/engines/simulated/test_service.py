"""A simulated engine over real sockets: what it answers, and what can be made to go wrong."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.text import expected_text

CHAT = [{"role": "user", "content": "Tell me a story."}]
ASKED = {"model": MODEL, "messages": CHAT}


async def events(client: httpx.AsyncClient, path: str = "/v1/chat/completions", **body: Any) -> list[str]:
    """The payloads of a stream; the transport's failure as the last of them."""
    found: list[str] = []
    try:
        async with client.stream("POST", path, json={**ASKED, **body, "stream": True}) as response:
            lines = response.aiter_lines()
            async for line in lines:
                if line.startswith("data: "):
                    found.append(line.removeprefix("data: "))  # noqa: PERF401 # what came before a failure counts
    except httpx.TransportError as error:
        found.append(type(error).__name__)
    return found


def text_of(payloads: list[str]) -> str:
    chunks = [json.loads(payload) for payload in payloads if payload.startswith("{")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", []))


async def chat(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json={**ASKED, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("dialect", list(DialectKind))
async def test_text_is_what_was_to_be_expected(dialect: DialectKind):
    """Streamed or whole, in every dialect, the answer is the function of the prompt that tests compare with."""
    async with serving(simulated(dialect)) as (_, client):
        expected = expected_text(MODEL, CHAT, 20)
        whole = await chat(client, max_tokens=20)
        assert whole["choices"][0]["message"]["content"] == expected
        assert whole["usage"]["completion_tokens"] == 20
        assert text_of(await events(client, max_tokens=20)) == expected


async def test_an_answer_ends_by_itself_and_its_end_counts():
    """Like a real one: the token that ends an answer is counted and has no text."""
    async with serving(simulated(answer_tokens=(5, 5))) as (_, client):
        answer = await chat(client)
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["choices"][0]["message"]["content"] == expected_text(MODEL, CHAT, 5)
        assert answer["usage"]["completion_tokens"] == 6
        assert (await chat(client, max_tokens=5))["choices"][0]["finish_reason"] == "length"
        assert (await chat(client, max_tokens=9, ignore_eos=True))["usage"]["completion_tokens"] == 9


async def test_a_stop_text_ends_the_answer_before_it():
    """The text that stops is not part of the answer."""
    async with serving(simulated()) as (_, client):
        words = expected_text(MODEL, CHAT, 20).split(" ")
        answer = (await chat(client, max_tokens=30, stop=[words[4]]))["choices"][0]
        assert answer["message"]["content"].split(" ") == [*words[:4], ""]
        assert answer["finish_reason"] == "stop"


async def test_choices_differ_and_are_whole():
    """n answers to one prompt, each its own, streamed under its index."""
    async with serving(simulated()) as (_, client):
        answer = await chat(client, n=3, max_tokens=6)
        texts = [choice["message"]["content"] for choice in answer["choices"]]
        assert texts == [expected_text(MODEL, CHAT, 6, choice=index) for index in range(3)]
        assert answer["usage"]["completion_tokens"] == 18
        payloads = await events(client, n=3, max_tokens=6)
        assert payloads.count("[DONE]") == 1
        assert sum('"finish_reason":"length"' in payload for payload in payloads) == 3


async def test_several_prompts_are_answered_in_order():
    """The completions API takes a list, and token ids."""
    async with serving(simulated()) as (_, client):
        body = {"model": MODEL, "prompt": ["one", "two"], "max_tokens": 4}
        answer = (await client.post("/v1/completions", json=body)).json()
        assert [c["text"] for c in answer["choices"]] == [expected_text(MODEL, p, 4) for p in ("one", "two")]
        ids = (await client.post("/tokenize", json={"model": MODEL, "prompt": "one"})).json()["tokens"]
        answer = (await client.post("/v1/completions", json={**body, "prompt": ids})).json()
        assert answer["choices"][0]["text"] == expected_text(MODEL, "one", 4)
        assert (await client.post("/detokenize", json={"tokens": ids})).json() == {"prompt": "one"}


async def test_a_repeated_prompt_is_found_in_the_cache():
    """The usage says how many prompt tokens were cached, in whole blocks, as vLLM does."""
    async with serving(simulated()) as (_, client):
        messages = [{"role": "user", "content": "word " * 200}]
        first, second = [(await chat(client, messages=messages, max_tokens=2))["usage"] for _ in range(2)]
        assert first["prompt_tokens_details"]["cached_tokens"] == 0
        assert second["prompt_tokens_details"]["cached_tokens"] == second["prompt_tokens"] // 16 * 16


async def test_a_later_turn_finds_the_answer_before_it_cached():
    """A conversation's own answers are in the prefix, too."""
    async with serving(simulated()) as (_, client):
        messages = [{"role": "user", "content": "word " * 64}]
        said = await chat(client, messages=messages, max_tokens=64, ignore_eos=True)
        messages += [said["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        usage = (await chat(client, messages=messages, max_tokens=1))["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 128


async def test_a_tool_that_is_forced_is_called():
    """Arguments keep to the tool's schema, streamed in pieces or whole."""
    function = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                                                      "required": ["city"]}}  # fmt: skip
    tools = [{"type": "function", "function": function}]
    async with serving(simulated()) as (_, client):
        choice = (await chat(client, tools=tools, tool_choice="required"))["choices"][0]
        call = choice["message"]["tool_calls"][0]["function"]
        assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "a"})
        assert choice["finish_reason"] == "tool_calls"
        named = {"type": "function", "function": {"name": "get_weather"}}
        chunks = [json.loads(p) for p in await events(client, tools=tools, tool_choice=named) if p != "[DONE]"]
        calls = [c["delta"]["tool_calls"][0] for ch in chunks for c in ch["choices"] if c["delta"].get("tool_calls")]
        assert calls[0]["function"]["name"] == "get_weather"
        assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "a"}
        assert (await chat(client, tools=tools, max_tokens=3))["choices"][0]["message"]["content"]


async def test_log_probabilities_come_one_a_token():
    """As many entries as tokens, in the chat and in the completions API."""
    async with serving(simulated()) as (_, client):
        entries = (await chat(client, max_tokens=4, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
        assert len(entries) == 4
        assert all(len(entry["top_logprobs"]) == 2 for entry in entries)


@pytest.mark.parametrize("wrong", [10**9, -1])
async def test_too_many_log_probabilities_are_refused(wrong: int):
    """A number that somebody typed by accident is an error at once, not gigabytes of alternatives."""
    async with serving(simulated()) as (_, client):
        for path, members in (
            ("/v1/chat/completions", {"logprobs": True, "top_logprobs": wrong}),
            ("/v1/completions", {"prompt": "x", "logprobs": wrong}),
        ):
            answer = await client.post(path, json={**ASKED, "max_tokens": 2, **members})
            assert answer.status_code == 400
            assert "logprobs" in answer.text


@pytest.mark.parametrize("dialect", [DialectKind.VLLM, DialectKind.SGLANG, DialectKind.LLAMACPP])
async def test_the_newer_apis_say_the_same(dialect: DialectKind):
    """Responses and Messages, whole and streamed, carry the same text."""
    async with serving(simulated(dialect)) as (_, client):
        expected = expected_text(MODEL, CHAT, 6)
        asked = {"model": MODEL, "input": CHAT, "max_output_tokens": 6}
        answer = (await client.post("/v1/responses", json=asked)).json()
        assert answer["output"][0]["content"][0]["text"] == expected
        assert answer["status"] == "incomplete"
        chunks = [json.loads(p) for p in await events(client, "/v1/responses", input=CHAT, max_output_tokens=6)]
        assert "".join(c["delta"] for c in chunks if c["type"] == "response.output_text.delta") == expected
        assert chunks[-1]["response"]["usage"]["output_tokens"] == 6
        answer = (await client.post("/v1/messages", json={**ASKED, "max_tokens": 6})).json()
        assert answer["content"][0]["text"] == expected
        assert answer["stop_reason"] == "max_tokens"
        chunks = [json.loads(p) for p in await events(client, "/v1/messages", max_tokens=6)]
        assert "".join(c["delta"].get("text", "") for c in chunks if c["type"] == "content_block_delta") == expected
        assert [chunks[0]["type"], chunks[-1]["type"]] == ["message_start", "message_stop"]


async def test_embeddings_are_alike_for_alike_texts():
    """Vectors of length one, in the order asked, the same each time."""
    async with serving(simulated(serves_embeddings=True)) as (_, client):
        body = {"model": MODEL, "input": ["the cat sleeps", "a cat sleeps", "rates rose"]}
        rows = (await client.post("/v1/embeddings", json=body)).json()["data"]
        one, two, three = (row["embedding"] for row in rows)
        assert [row["index"] for row in rows] == [0, 1, 2]
        assert sum(v * v for v in one) == pytest.approx(1)
        product = [sum(x * y for x, y in zip(one, other, strict=True)) for other in (two, three)]
        assert product[0] > product[1]


async def test_a_continuation_gives_the_rest():
    """vLLM continues a trailing assistant message where it is told to; headrace resumes streams so."""
    async with serving(simulated()) as (_, client):
        whole = expected_text(MODEL, CHAT, 20)
        messages = [*CHAT, {"role": "assistant", "content": whole[:30]}]
        flags = {"continue_final_message": True, "add_generation_prompt": False}
        answer = await chat(client, messages=messages, max_tokens=30, ignore_eos=True, **flags)
        assert (whole[:30] + answer["choices"][0]["message"]["content"]).startswith(whole)
        both = {**ASKED, "messages": messages, "continue_final_message": True}
        assert (await client.post("/v1/chat/completions", json=both)).status_code == 400


async def test_llamacpp_repeats_the_part_in_whole_answers_alone():
    """Its trailing assistant message is continued unasked, echoed in an answer and not in a stream."""
    async with serving(simulated(DialectKind.LLAMACPP)) as (_, client):
        part = expected_text(MODEL, CHAT, 5)
        messages = [*CHAT, {"role": "assistant", "content": part}]
        answer = (await chat(client, messages=messages, max_tokens=4))["choices"][0]["message"]["content"]
        streamed = text_of(await events(client, messages=messages, max_tokens=4))
        assert answer == part + streamed == expected_text(MODEL, CHAT, 9)


async def test_a_client_that_leaves_frees_its_sequences():
    """Within the time that the engine needs to notice."""
    async with serving(simulated(step_s=0.005)) as (service, client):
        asked = {**ASKED, "stream": True, "max_tokens": 900, "ignore_eos": True, "n": 2}
        async with client.stream("POST", "/v1/chat/completions", json=asked) as response:
            await anext(response.aiter_lines())
            assert service.engine.load().running == 2
        async with asyncio.timeout(10):
            while service.engine.load().running:
                await asyncio.sleep(0.01)
        assert service.is_idle


async def test_a_full_queue_is_refused_in_the_engines_own_words():
    """With a bound, what is beyond it gets 503; without one it waits."""
    words = {DialectKind.VLLM: "currently busy", DialectKind.SGLANG: "The request queue is full."}
    for dialect, said in words.items():
        config = simulated(dialect, step_s=0.01, max_sequences=1, max_queued_requests=1)
        async with serving(config) as (_, client):
            asked = {**ASKED, "max_tokens": 40, "ignore_eos": True}
            answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=asked) for _ in range(4)))
            assert {answer.status_code for answer in answers} == {200, 503}
            assert all(said in answer.text for answer in answers if answer.status_code == 503)


@pytest.mark.parametrize("how", ["fin", "rst", "error-event"])
async def test_a_stream_can_be_cut(how: str):
    """In the middle, by FIN or RST, or as vLLM does it; the next one is whole again."""
    async with serving(simulated()) as (service, client):
        fault = {"kind": "cut", "after_tokens": 5, "how": how, "count": 1}
        await client.post("/sim/faults", json={"faults": [fault]})
        broken = await events(client, max_tokens=20)
        if how == "error-event":
            assert json.loads(broken[-2])["error"]["code"] == 500
            assert broken[-1] == "[DONE]"
        else:
            assert broken[-1] in ("RemoteProtocolError", "ReadError")
        assert expected_text(MODEL, CHAT, 20).startswith(text_of(broken[:-2]))
        assert 4 <= len(text_of(broken[:-2]).split(" ")) <= 5
        assert text_of(await events(client, max_tokens=20)) == expected_text(MODEL, CHAT, 20)
        assert service.engine.load().running == 0


async def test_a_whole_answer_uses_up_no_fault_of_streams():
    """What can only happen to a stream waits for one, and is counted when it happened."""
    async with serving(simulated()) as (_, client):
        await client.post("/sim/faults", json={"kind": "cut", "after_tokens": 2, "count": 1})
        await chat(client, max_tokens=4)
        assert (await client.get("/sim/faults")).json()["faults"][0]["happened"] == 0
        assert (await events(client, max_tokens=4))[-1] == "RemoteProtocolError"


async def test_a_stall_sends_nothing_and_then_all():
    """The connection stays open; when the stall is over, what was computed meanwhile comes at once."""
    async with serving(simulated()) as (_, client):
        await client.post("/sim/faults", json={"kind": "stall", "after_tokens": 3, "stall_s": 0.3, "count": 1})
        loop = asyncio.get_running_loop()
        began_mono_s = loop.time()
        assert text_of(await events(client, max_tokens=20)) == expected_text(MODEL, CHAT, 20)
        assert loop.time() - began_mono_s >= 0.3


async def test_answers_can_be_malformed():
    """Neither a whole answer nor the events of a stream are JSON any more."""
    async with serving(simulated()) as (_, client):
        await client.post("/sim/faults", json={"kind": "malformed"})
        answer = await client.post("/v1/chat/completions", json={**ASKED, "max_tokens": 4})
        with pytest.raises(json.JSONDecodeError):
            answer.json()
        with pytest.raises(json.JSONDecodeError):
            text_of(await events(client, max_tokens=8))


async def test_requests_can_be_refused_and_the_process_can_die():
    """`error` answers with a status of choice, `die` ends the process (here: it only says so)."""
    async with serving(simulated()) as (_, client):
        await client.post("/sim/faults", json=[{"kind": "error", "status": 503, "count": 1}])
        assert [(await client.post("/v1/chat/completions", json=ASKED)).status_code for _ in range(2)] == [503, 200]
        shown = (await client.get("/sim/faults")).json()["faults"]
        assert (shown[0]["happened"], shown[0]["is_active"]) == (1, False)


@pytest.mark.parametrize("body", [b"{", b'{"faults": 3}', b'[{"kind": "boom"}]', b'[{"kind": "slow", "factor": 0}]'])
async def test_a_wrong_fault_changes_nothing(body: bytes):
    """What was set before stays."""
    async with serving(simulated()) as (_, client):
        await client.post("/sim/faults", json=[{"kind": "metrics-nan"}])
        assert (await client.post("/sim/faults", content=body)).status_code == 400
        assert [fault["kind"] for fault in (await client.get("/sim/faults")).json()["faults"]] == ["metrics-nan"]


async def test_metrics_can_lie():
    """NaN, stale, missing and renamed pages, one after the other."""
    async with serving(simulated()) as (_, client):

        async def page(kind: str | None) -> httpx.Response:
            await client.post("/sim/faults", json=[] if kind is None else [{"kind": kind}])
            return await client.get("/metrics")

        assert "vllm:num_requests_running{" in (await page(None)).text
        assert "NaN" in (await page("metrics-nan")).text
        assert (await page("metrics-missing")).status_code == 404
        assert "\nrenamed_vllm:num_requests_running" in (await page("metrics-renamed")).text
        stale = (await page("metrics-stale")).text
        await chat(client, max_tokens=3)
        assert (await client.get("/metrics")).text == stale
        assert (await page(None)).text != stale


async def test_slowness_is_felt_and_ends():
    """Every step takes as many times as long as the fault says."""
    async with serving(simulated(step_s=0.005)) as (service, client):
        await client.post("/sim/faults", json=[{"kind": "slow", "factor": 20}])
        loop = asyncio.get_running_loop()
        began_mono_s = loop.time()
        await chat(client, max_tokens=3)
        assert loop.time() - began_mono_s >= 0.3
        assert service.pump.steps == 3


async def test_bodies_that_make_no_sense_are_answered():
    """Every refusal is a 4xx with a reason, and the engine goes on."""
    async with serving(simulated()) as (_, client):
        for body in (b"", b"[]", b"nope", b"[" * 100_000, b'{"messages": []}', b'{"messages": 3}', b"\xff\xfe"):
            answer = await client.post("/v1/chat/completions", content=body)
            assert answer.status_code == 400, (body, answer.text)
        for fields in (
            {"max_tokens": 0},
            {"temperature": -1},
            {"n": 0},
            {"tools": []},
            {"response_format": {"type": "x"}},
        ):
            answer = await client.post("/v1/chat/completions", json={**ASKED, **fields})
            assert answer.status_code == 400, (fields, answer.text)
        assert (await client.get("/nowhere")).status_code == 404
        await chat(client, max_tokens=1)


async def test_tools_and_template_arguments_are_part_of_the_prompt():
    """As in real templates: they count as input, and of tools in another order nothing is found cached."""
    tools = [
        {"type": "function", "function": {"name": name, "description": "Look it up in the books. " * 20}}
        for name in ("corn", "flour")
    ]
    async with serving(simulated()) as (_, client):
        bare = (await chat(client, max_tokens=1))["usage"]["prompt_tokens"]
        asked: list[dict[str, Any]] = [
            {"tools": tools},
            {"tools": tools},
            {"tools": tools[::-1]},
            {"tools": tools, "chat_template_kwargs": {"enable_thinking": False}},
        ]
        told = [(await chat(client, max_tokens=1, **fields))["usage"] for fields in asked]
        assert told[0]["prompt_tokens"] > bare + 200
        assert told[3]["prompt_tokens"] > told[0]["prompt_tokens"]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in told]
        assert cached[1] > 250
        assert (cached[0], cached[2], cached[3]) == (0, 0, 0)
