"""What must stay secret is looked for in every place a gateway writes to; what is counted agrees everywhere."""

import asyncio
import json
from collections import Counter
from pathlib import Path

from tests.harness.journal_records import records_of
from tests.harness.raw_client import RawClient, ask, chat, get, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import Script, ScriptedEngine, Seen, completion, whole

PROMPT = "canary-prompt-7f3a"
ANSWER = "canary-answer-91bc"
BEARER = "canary-bearer-55de"


async def answer_canary(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(200, completion(ANSWER)))
    await writer.drain()


async def refuse_with_prompt(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(500, json.dumps({"error": {"message": f"cannot read {PROMPT}", "code": 500}}).encode()))
    await writer.drain()


async def break_json(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(200, b'{"choices": ' + ANSWER.encode()))
    await writer.drain()


async def silent(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


SCRIPTS: dict[str, Script] = {
    "answer": answer_canary,
    "refuse": refuse_with_prompt,
    "break": break_json,
    "silent": silent,
}


async def test_no_secret_reaches_a_sink(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Prompts, answers, keys and endpoint credentials are in no log, journal, metric, status or error."""
    engine.scripts = SCRIPTS
    pool = remote_pool(engine.url, credentials={"bearer": BEARER}, probe={"eject_after": 1})
    async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
        await gateway.wait_ready()
        port, key = gateway.port, gateway.key
        errors = [
            await ask(port, post(chat(f"script:{name} {PROMPT}", stream=is_stream), key))
            for name in ("refuse", "break")
            for is_stream in (False, True)
        ]
        errors.append(await ask(port, post(f'{{"model":"m","messages":[{{"role":"{PROMPT}'.encode(), key)))
        errors.append(await ask(port, post(chat(PROMPT, model="other"), key)))
        errors.append(await ask(port, post(chat(PROMPT, priority=1), key)))
        errors.append(await ask(port, post(chat(PROMPT), key[:-3] + "zzz")))
        good = await ask(port, post(chat(f"script:answer {PROMPT}"), key))
        assert ANSWER.encode() in good.body
        assert {seen.headers["authorization"] for seen in engine.seen} == {f"Bearer {BEARER}"}
        await gateway.wait_idle()
        live = (await gateway.metrics()) + repr(await gateway.status())
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "requests.jsonl" for path in files)
    secrets = [text.encode() for text in (PROMPT, ANSWER, BEARER, key, key[:-3] + "zzz")]
    for secret in secrets:
        assert secret not in live.encode()
        assert not [path.name for path, content in files.items() if secret in content]
    for error in errors:
        for secret in (BEARER.encode(), key.encode(), ANSWER.encode(), key[:-3].encode()):
            assert secret not in error.body


async def test_invented_names_make_no_series(gateway: RunningGateway) -> None:
    """10,000 models, request ids and paths that do not exist leave the number of metric series as it was."""
    port, key = gateway.port, gateway.key

    async def visit(first: int, count: int) -> None:
        async with RawClient(port) as client:
            for number in range(first, first + count):
                await client.send(post(chat(model=f"made-up-{number}"), key, x_request_id=f"id-{number}"))
                assert (await client.answer()).status == 404
                if number % 10 == 0:
                    await client.send(get(f"/v1/made-up-{number}", key))
                    assert (await client.answer()).status == 404

    await visit(0, 1)
    before = len((await gateway.metrics()).splitlines())
    await asyncio.gather(*(visit(1 + part * 1250, 1250) for part in range(8)))
    after = await gateway.metrics()
    assert (await gateway.status()).requests == 11_002
    assert len(after.splitlines()) == before
    assert "made-up" not in after


async def test_every_request_is_counted_once_and_everywhere(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Metrics, journal and log agree with what was sent: good, refused, malformed and abandoned requests alike.

    Counted is every request line that came, but for those of load balancers (no key needed, answered well).
    """
    engine.scripts = SCRIPTS
    pool = remote_pool(engine.url, probe={"eject_after": 100})
    declaration = declare({"p": pool}, gateway={"retry": {"max_attempts": 1}})
    async with RunningGateway(tmp_path, declaration) as gateway:
        await gateway.wait_ready()
        port, key = gateway.port, gateway.key
        sent = Counter[str]()
        for code, request in (
            ("", post(chat(), key)),
            ("", post(chat(stream=True), key)),
            ("", get("/v1/models", key)),
            ("invalid_request", post(b"{", key)),
            ("invalid_request", b"NONSENSE\r\n\r\n"),
            ("unauthenticated", post(chat(), "hr-nobody")),
            ("model_not_found", post(chat(model="none"), key)),
            ("engine_refused", post(chat("script:refuse"), key)),
            ("deadline_exceeded", post(chat("script:silent"), key, x_request_timeout="0.2")),
            ("route_not_found", get("/nowhere", key)),
        ):
            answer = await ask(port, request)
            assert (answer.code or "") == code
            sent[code] += 1
        await ask(port, get("/health"))
        async with RawClient(port) as client:
            await client.send(post(chat("script:silent"), key))
            async with asyncio.timeout(30):
                while not engine.open_requests:
                    await asyncio.sleep(0.01)
        sent["caller_disconnected"] += 1
        async with RawClient(port) as client:
            await client.send(post(chat(), key)[:-5])
            async with asyncio.timeout(30):
                while (await gateway.status()).connections == 0:
                    await asyncio.sleep(0.01)
        sent["caller_disconnected"] += 1
        async with asyncio.timeout(30):
            while (await gateway.status()).connections:
                await asyncio.sleep(0.01)
        status = await gateway.wait_idle()
        counted = Counter[str]()
        for line in (await gateway.metrics()).splitlines():
            if line.startswith("headrace_requests_total{"):
                counted[line.partition('code="')[2].partition('"')[0]] += int(float(line.rsplit(" ", 1)[1]))
        journal_dir, log_dir = gateway.settings.journal_dir, gateway.settings.log_dir
    records = records_of(journal_dir)
    lines = [json.loads(line) for line in (log_dir / "requests.jsonl").read_text().splitlines()]
    assert +counted == sent
    assert status.requests == sent.total()
    assert Counter(str(record["code"] or "") for record in records) == sent
    assert Counter(line.get("code") or "" for line in lines) == sent
    assert {record["uid"] for record in records} == {line["uid"] for line in lines}
    assert len({record["uid"] for record in records}) == sent.total()
