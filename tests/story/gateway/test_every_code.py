"""Every error code, produced over the wire, with the status, type and headers that the one table promises."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.harness.raw_client import RawAnswer, RawClient, ask, chat, get, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import STREAM_HEAD, ScriptedEngine, Seen, chunk_event, framed, whole

from headrace.domain.errors import ERRORS, ErrorCode

ELSEWHERE = {
    ErrorCode.DATABASE_UNAVAILABLE: "tests/unit/control_api/test_access.py",
    ErrorCode.INTERNAL_BUG: "tests/story/gateway/test_internal_bug.py",
    ErrorCode.IDENTITY_UNAVAILABLE: "tests/story/gateway/test_tokens.py",
    ErrorCode.KV_TRANSFER_FAILED: "tests/story/gateway/test_handover.py",
    ErrorCode.KV_TRANSFER_TIMEOUT: "tests/story/gateway/test_handover.py",
    ErrorCode.KV_LAYOUT_MISMATCH: "tests/story/gateway/test_handover.py",
    ErrorCode.DECODE_UNAVAILABLE: "tests/story/gateway/test_handover.py",
    ErrorCode.QUEUE_EXPIRED: "tests/story/gateway/test_queueing.py",
    ErrorCode.SUSPENDED: "tests/story/gateway/test_suspension.py",
    ErrorCode.CONFLICT: "tests/unit/control_api/test_tenant_routes.py",
    ErrorCode.OBJECT_NOT_FOUND: "tests/story/batch/test_files.py",
    ErrorCode.STORE_UNAVAILABLE: "tests/story/batch/test_files.py",
}
"""Codes produced over the wire there: by the control API, the batch process, and by a bug planted in a worker."""


async def too_long(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    body = (
        b'{"error":{"message":"This model\'s maximum context length is 2048 tokens. However, you requested 4000.",'
        b'"type":"BadRequestError","param":"input_tokens","code":400}}'
    )
    writer.write(whole(400, body))
    await writer.drain()


async def fail(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(500, b'{"error":{"message":"boom","type":"InternalServerError","code":500}}'))
    await writer.drain()


async def cut(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def silent(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def stall(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + framed(chunk_event("a")))
    await writer.drain()
    await asyncio.sleep(60)


SCRIPTS = {"too-long": too_long, "fail": fail, "cut": cut, "silent": silent, "stall": stall}


class Scene:
    """A gateway with everything needed to go wrong: keys of three kinds, an engine that fails on request."""

    def __init__(self, gateway: RunningGateway, engine: ScriptedEngine, admin: str, limited: str, spent: str) -> None:
        self.gateway = gateway
        self.engine = engine
        self.admin = admin
        self.limited = limited
        self.spent = spent

    async def post(self, text: str = "hi", key: str | None = None, **fields: object) -> RawAnswer:
        body = chat(text, **fields)  # pyright: ignore[reportArgumentType]
        return await ask(self.gateway.port, post(body, key or self.gateway.key))

    async def raw(self, data: bytes) -> RawAnswer:
        return await ask(self.gateway.port, data)


async def slow_head(scene: Scene) -> RawAnswer:
    async with RawClient(scene.gateway.port) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        return await client.answer()


async def connect_failed(scene: Scene) -> RawAnswer:
    """The endpoint was ready a moment ago: nobody listens any more when the request comes."""
    await scene.engine.stop()
    answer = await scene.post("connect")
    await scene.engine.start()
    await scene.gateway.wait_ready()
    return answer


async def saturated(scene: Scene) -> RawAnswer:
    """One request holds the only place for as long as its engine may be silent; on a slow machine that may be short."""
    while True:
        first = asyncio.ensure_future(scene.post("script:silent"))
        async with asyncio.timeout(30):
            while (await scene.gateway.status()).in_flight == 0 and not first.done():
                await asyncio.sleep(0.01)
        second = await scene.post()
        await first
        if second.status != 200:
            return second


Trigger = Callable[[Scene], Awaitable[RawAnswer]]
TRIGGERS: dict[ErrorCode, Trigger] = {
    ErrorCode.INVALID_REQUEST: lambda s: s.raw(post(b"{", s.gateway.key)),
    ErrorCode.UNSUPPORTED_PARAMETER: lambda s: s.post(priority=1),
    ErrorCode.CONTEXT_TOO_LONG: lambda s: s.post("script:too-long"),
    ErrorCode.ROUTE_NOT_FOUND: lambda s: s.raw(get("/v2/none")),
    ErrorCode.METHOD_NOT_ALLOWED: lambda s: s.raw(get("/v1/chat/completions", s.gateway.key)),
    ErrorCode.REQUEST_TIMEOUT: slow_head,
    ErrorCode.BODY_TOO_LARGE: lambda s: s.raw(post(b"x" * 5000, s.gateway.key)),
    ErrorCode.HEADERS_TOO_LARGE: lambda s: s.raw(get("/health", pad="y" * 3000)),
    ErrorCode.UNAUTHENTICATED: lambda s: s.post(key="hr-nobody"),
    ErrorCode.FORBIDDEN: lambda s: s.post(key=s.admin),
    ErrorCode.MODEL_NOT_FOUND: lambda s: s.post(model="none"),
    ErrorCode.RATE_LIMITED: lambda s: s.post(key=s.limited),
    ErrorCode.QUOTA_EXHAUSTED: lambda s: s.post(key=s.spent),
    ErrorCode.SATURATED: saturated,
    ErrorCode.CONNECT_FAILED: connect_failed,
    ErrorCode.ENGINE_REFUSED: lambda s: s.post("script:fail"),
    ErrorCode.FIRST_TOKEN_TIMEOUT: lambda s: s.post("script:silent"),
    ErrorCode.STREAM_BROKEN: lambda s: s.post("script:cut"),
    ErrorCode.STREAM_STALLED: lambda s: s.post("script:stall", stream=True),
    ErrorCode.DEADLINE_EXCEEDED: lambda s: s.raw(post(chat("script:silent"), s.gateway.key, x_request_timeout="0.2")),
}
ELSEWHERE_HERE = {
    ErrorCode.NO_READY_ENDPOINT, ErrorCode.DRAINING, ErrorCode.CALLER_DISCONNECTED,
}  # fmt: skip
"""Codes with a test of their own below."""


@pytest.fixture
async def scene(engine: ScriptedEngine, tmp_path: Path):
    engine.scripts = SCRIPTS
    admin, admin_record = new_key(scope="admin")
    limited, limited_record = new_key("limited")
    spent, spent_record = new_key("spent")
    pool = remote_pool(
        engine.url, answer_timeout_s=0.8, first_token_timeout_s=0.8, stall_timeout_s=0.8,
        probe={"interval_s": 30.0, "timeout_s": 1.0, "eject_after": 100},
    )  # fmt: skip
    declaration = declare(
        {"p": pool},
        tenants={
            "default": {},
            "limited": {"limits": {"concurrent_requests": 0}},
            "spent": {"budget": {"per_day": 0}},
        },
        prices={"models": {"m": {"input_per_million": 1}}},
        gateway={
            "limits": {"header_bytes": 1024, "body_bytes": 4096, "header_timeout_s": 0.4, "in_flight": 1},
            "retry": {"max_attempts": 1},
        },
    )
    async with RunningGateway(tmp_path, declaration, keys=(admin_record, limited_record, spent_record)) as gateway:
        await gateway.wait_ready()
        yield Scene(gateway, engine, admin, limited, spent)


@pytest.mark.parametrize("code", list(TRIGGERS), ids=lambda code: code.value)
async def test_a_code_looks_as_the_table_says(scene: Scene, code: ErrorCode) -> None:
    """Status, type, code and headers come from the one table, whatever went wrong."""
    answer = await TRIGGERS[code](scene)
    spec = ERRORS[code]
    if code is ErrorCode.STREAM_STALLED:
        assert answer.status == 200
        assert f'"code":"{code.value}"'.encode() in answer.body.split(b"\n\n")[-2]
        return
    assert (answer.status, answer.code) == (spec.http_status, code.value)
    assert answer.json["error"]["type"] == spec.openai_type
    assert answer.headers["content-type"] == "application/json"
    assert ("www-authenticate" in answer.headers) == (code is ErrorCode.UNAUTHENTICATED)
    assert ("allow" in answer.headers) == (code is ErrorCode.METHOD_NOT_ALLOWED)
    if spec.retry_after_s is not None:
        assert int(answer.headers["retry-after"]) >= 1
    assert not re.search(r"Traceback|File \"", answer.body.decode())
    status = await scene.gateway.wait_idle()
    assert status.in_flight == 0


async def test_a_spent_limit_of_zero_says_that_retrying_is_no_use(scene: Scene) -> None:
    """Clients that honour x-should-retry stop at once."""
    answer = await scene.post(key=scene.limited)
    assert answer.headers["x-should-retry"] == "false"


async def test_no_ready_endpoint(tmp_path: Path) -> None:
    """Nothing listens where the pool points."""
    async with RunningGateway(tmp_path, declare({"p": remote_pool("http://127.0.0.1:9")})) as gateway:
        answer = await ask(gateway.port, post(chat(), gateway.key))
    assert (answer.status, answer.code) == (503, ErrorCode.NO_READY_ENDPOINT)


async def test_draining(scene: Scene) -> None:
    """While what is in work finishes, a new request on an open connection is refused."""
    async with RawClient(scene.gateway.port) as busy, RawClient(scene.gateway.port) as late:
        await busy.send(post(chat("script:stall", stream=True), scene.gateway.key))
        await busy.head()
        await late.send(b"POST /v1/chat/completions HTTP/1.1\r\n")  # under way, so not closed as idle
        await asyncio.sleep(0.05)
        await scene.gateway.drain(5.0)
        await late.send(post(chat(), scene.gateway.key).partition(b"\r\n")[2])
        answer = await late.answer()
    assert (answer.status, answer.code, answer.headers["connection"]) == (503, ErrorCode.DRAINING, "close")


async def test_what_does_not_finish_in_a_drain_ends_in_band(scene: Scene) -> None:
    """At the bound, a stream gets an error event, not a cut."""
    async with RawClient(scene.gateway.port) as client:
        await client.send(post(chat("script:stall", stream=True), scene.gateway.key))
        await client.head()
        await scene.gateway.drain(0.2)
        body = b"".join([chunk async for chunk in client.chunks()])
    assert b'"code":"draining"' in body
    assert b"[DONE]" not in body


async def test_caller_disconnected_is_seen_in_metrics(scene: Scene) -> None:
    """Nobody is left to be told; operators see it."""
    async with RawClient(scene.gateway.port) as client:
        await client.send(post(chat("script:silent"), scene.gateway.key))
        async with asyncio.timeout(30):
            while not scene.engine.open_requests:
                await asyncio.sleep(0.01)
    await scene.gateway.wait_idle()
    assert await scene.gateway.metric('headrace_requests_total{code="caller_disconnected",model="m"') == 1.0


def test_every_code_is_produced_by_some_test() -> None:
    """A code that nothing produces is dead."""
    assert set(TRIGGERS) | ELSEWHERE_HERE | set(ELSEWHERE) == set(ErrorCode)
    root = Path(__file__).resolve().parents[3]
    for code, path in ELSEWHERE.items():
        assert code.value in (root / path).read_text()
