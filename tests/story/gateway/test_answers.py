"""What a caller gets when all is well: whole answers, streams, usage as asked for, models, health."""

import json
from pathlib import Path

from tests.harness.raw_client import RawClient, ask, chat, get, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, completion


async def test_a_whole_answer_reaches_the_caller_byte_for_byte(gateway: RunningGateway) -> None:
    """The engine's JSON is not re-encoded on its way."""
    answer = await ask(gateway.port, post(chat(), gateway.key))
    assert (answer.status, answer.body) == (200, completion())
    assert answer.headers["content-type"] == "application/json"


async def test_the_body_reaches_the_engine_byte_for_byte(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """White space, key order and unknown fields of the caller are left as they are."""
    body = b'{ "messages":[{"role":"user","content":"\\u00e9 "}],\n "model" : "m","x_future":{"a":[1,2.50]}}'
    assert (await ask(gateway.port, post(body, gateway.key))).status == 200
    assert engine.seen[0].body == body


async def test_the_callers_key_never_reaches_the_engine(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """The key is the gateway's business alone."""
    await ask(gateway.port, post(chat(), gateway.key))
    seen = engine.seen[0]
    assert gateway.key not in str(seen.headers) + seen.body.decode()


async def test_a_stream_hides_the_usage_that_only_we_asked_for(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """The engine is asked for usage; a caller that did not ask sees none of it, and the ledger has it."""
    answer = await ask(gateway.port, post(chat(stream=True), gateway.key))
    assert engine.seen[0].json["stream_options"] == {"include_usage": True}
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in answer.body
    assert [json.loads(e[6:])["choices"][0]["delta"] for e in answer.body.split(b"\n\n")[:-2]] == [
        {"content": "hello"},
        {"content": " there"},
        {"content": " friend"},
        {},
    ]
    metrics = await gateway.metrics()
    assert 'headrace_tokens_total{kind="input",model="m"} 7.0' in metrics
    assert 'headrace_tokens_total{kind="cached_input",model="m"} 2.0' in metrics
    assert 'headrace_tokens_total{kind="output",model="m"} 3.0' in metrics


async def test_a_stream_shows_usage_to_a_caller_that_asked(gateway: RunningGateway) -> None:
    """With include_usage the engine's usage event arrives, just before the end."""
    body = chat(stream=True, stream_options={"include_usage": True})
    answer = await ask(gateway.port, post(body, gateway.key))
    assert json.loads(answer.body.split(b"\n\n")[-3][6:])["usage"]["completion_tokens"] == 3


async def test_a_stream_says_that_nothing_may_hold_it_back(gateway: RunningGateway) -> None:
    """Proxies on the way are told not to buffer or store events."""
    answer = await ask(gateway.port, post(chat(stream=True), gateway.key))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"


async def test_request_id_and_trace_are_taken_returned_and_forwarded(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    """A caller can follow its request through gateway, engine and logs; the engine knows it by an id of ours."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    request = post(chat(), gateway.key, x_request_id="abc-1", traceparent=trace, tracestate="a=b")
    answer = await ask(gateway.port, request)
    assert answer.headers["x-request-id"] == "abc-1"
    for headers in (answer.headers, engine.seen[0].headers):
        assert headers["traceparent"] == trace
    assert engine.seen[0].headers["tracestate"] == "a=b"


async def test_request_id_and_trace_are_made_where_missing_or_unusable(gateway: RunningGateway) -> None:
    """An id that could break a log line is replaced, not passed on."""
    answer = await ask(gateway.port, post(chat(), gateway.key, x_request_id='a"b c', traceparent="00-0-0-01"))
    assert answer.headers["x-request-id"].startswith("req_")
    assert len(answer.headers["traceparent"]) == 55


async def test_models_lists_only_what_the_caller_may_use(gateway: RunningGateway) -> None:
    """The model list is OpenAI's shape; an unknown one is 404."""
    listed = await ask(gateway.port, get("/v1/models", gateway.key))
    assert [model["id"] for model in listed.json["data"]] == ["m"]
    assert (await ask(gateway.port, get("/v1/models/m", gateway.key))).json["object"] == "model"
    assert (await ask(gateway.port, get("/v1/models/none", gateway.key))).code == "model_not_found"


async def test_health_and_ready_need_no_key(gateway: RunningGateway) -> None:
    """Load balancers ask without credentials."""
    assert (await ask(gateway.port, get("/health"))).status == 200
    assert (await ask(gateway.port, get("/ready"))).status == 200


async def test_connections_to_an_engine_are_used_again(tmp_path: Path, engine: ScriptedEngine) -> None:
    """A connection per request would cost more than all the rest of a request."""
    pool = remote_pool(engine.url, probe={"interval_s": 60.0})
    async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
        await gateway.wait_ready()
        before = engine.connections
        for is_stream in (False, True, False, True):
            assert (await ask(gateway.port, post(chat(stream=is_stream), gateway.key))).status == 200
        assert engine.connections - before <= 1


async def test_head_and_options_are_answered(gateway: RunningGateway) -> None:
    """HEAD gives a length and no body; OPTIONS names the methods."""
    async with RawClient(gateway.port) as client:
        await client.send(get("/health", method="HEAD"))
        head = await client.answer(is_head=True)
        await client.send(get("/v1/chat/completions", method="OPTIONS"))
        options = await client.answer()
    assert (head.status, head.headers["content-length"]) == (200, "15")
    assert (options.status, options.headers["allow"]) == (204, "POST, OPTIONS")


async def test_pipelined_requests_are_answered_in_order(gateway: RunningGateway) -> None:
    """Several requests in one packet get their answers one after the other."""
    async with RawClient(gateway.port) as client:
        await client.send(
            post(chat(), gateway.key, x_request_id="1")
            + post(chat(stream=True), gateway.key, x_request_id="2")
            + get("/health", x_request_id="3")
        )
        ids = [(await client.answer()).headers["x-request-id"] for _ in range(3)]
    assert ids == ["1", "2", "3"]


async def test_expect_continue_is_answered_before_the_body_comes(gateway: RunningGateway) -> None:
    """A client that waits for 100 Continue gets it, once its key is known to be good."""
    request = post(chat(), gateway.key, expect="100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    async with RawClient(gateway.port) as client:
        await client.send(head + b"\r\n\r\n")
        assert (await client.head())[0] == 100
        await client.send(body)
        assert (await client.answer()).status == 200


async def test_a_chunked_body_is_read(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """Clients that do not know the length in advance are served."""
    body = json.dumps(chat()).encode()
    head = post(b"", gateway.key).partition(b"\r\n\r\n")[0].replace(b"content-length: 0", b"transfer-encoding: chunked")
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
    async with RawClient(gateway.port) as client:
        await client.send(head + b"\r\n\r\n" + chunks)
        assert (await client.answer()).status == 200
    assert engine.seen[0].body == body


async def test_an_http_1_0_caller_gets_a_stream_that_ends_with_the_connection(gateway: RunningGateway) -> None:
    """Old clients know no chunks."""
    request = post(chat(stream=True), gateway.key).replace(b"HTTP/1.1", b"HTTP/1.0")
    async with RawClient(gateway.port) as client:
        await client.send(request)
        answer = await client.answer()
    assert "transfer-encoding" not in answer.headers
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_an_offered_upgrade_is_ignored_and_its_body_is_still_a_body(gateway: RunningGateway) -> None:
    """Java's client offers h2c with every POST; its body must not be read as a second request."""
    request = post(chat(), gateway.key, connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAA")
    async with RawClient(gateway.port) as client:
        await client.send(request + get("/health"))
        assert (await client.answer()).json["object"] == "chat.completion"
        assert (await client.answer()).body == b'{"status":"ok"}'


async def test_a_renamed_model_is_asked_for_by_the_engines_name(engine: ScriptedEngine, tmp_path: Path) -> None:
    """`served_model` is what the engine hears; the rest of the body keeps its bytes."""
    declaration = declare({"p": remote_pool(engine.url, served_model="org/M")})
    async with RunningGateway(tmp_path, declaration) as gateway:
        await gateway.wait_ready()
        await ask(gateway.port, post(chat(stream=True, stream_options={"x": 1}), gateway.key))
    assert engine.seen[0].json["model"] == "org/M"
    assert engine.seen[0].json["stream_options"] == {"x": 1, "include_usage": True}
