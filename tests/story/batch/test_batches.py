"""Batches as the official client creates, watches and reads them."""

import asyncio
from collections import Counter
from pathlib import Path

import openai
import pytest
from tests.harness.batch_lines import an_office, begin, jsonl, line, results
from tests.harness.journal_records import records_of
from tests.harness.running_gateway import new_key
from tests.harness.scripted_engine import ScriptedEngine, Seen, whole


async def test_a_batch_is_answered_line_by_line(tmp_path: Path) -> None:
    """Every line is answered once, as a request of class offline of its own; the ledger has each."""
    names = [f"n{number}" for number in range(40)]
    async with an_office(tmp_path) as office:
        client = office.batches.client()
        made = await begin(client, jsonl(line(name) for name in names), metadata={"night": "1"})
        done = await office.batches.wait_over(client, made.id)
        answers = await results(client, done.output_file_id)
        listed = await client.batches.list()

        assert (done.status, done.request_counts.completed, done.error_file_id) == ("completed", 40, None)
        assert set(answers) == set(names)
        answer = answers["n7"]["response"]
        assert (answer["status_code"], answer["body"]["usage"]["total_tokens"]) == (200, 10)
        assert (listed.data[0].id, listed.data[0].metadata) == (made.id, {"night": "1"})
        assert (await client.files.retrieve(done.output_file_id)).purpose == "batch_output"
        await office.batches.gateway.stop()
        lines = [
            one for one in records_of(office.batches.gateway.settings.journal_dir) if one["requested_model"] == "m"
        ]
        assert {f"{made.id}-{number}" for number in range(40)} == {one["request_id"] for one in lines}
        assert Counter(one["request_class"] for one in lines) == {"offline": 40}


async def test_what_the_store_refuses_is_on_record_as_refused(tmp_path: Path) -> None:
    """Cancelling a batch that is over, or asking for one that is not there, is no completed request."""
    async with an_office(tmp_path) as office:
        client = office.batches.client()
        made = await begin(client, jsonl([line("one")]))
        await office.batches.wait_over(client, made.id)
        with pytest.raises(openai.ConflictError):
            await client.batches.cancel(made.id)
        with pytest.raises(openai.NotFoundError) as missing:
            await client.batches.retrieve("batch_nobody")
        await office.batches.gateway.stop()
        records = records_of(office.batches.gateway.settings.journal_dir)
        ends = {(one["http_status"], one["outcome"], one["code"]) for one in records}
        assert (409, "rejected", "conflict") in ends
        assert (404, "rejected", missing.value.code) in ends
        assert {one["code"] for one in records if one["outcome"] == "completed"} == {None}
        assert {one["http_status"] for one in records if one["outcome"] == "completed"} == {200}


async def test_what_a_line_gets_wrong_is_its_answer(tmp_path: Path) -> None:
    """Errors of single lines are in the error file beside the answers of the others, and fail nothing else."""

    async def too_long(_engine: ScriptedEngine, _request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(400, b'{"error":{"message":"no","type":"BadRequestError","code":400}}'))

    lines = [line("good"), line("unknown", body={"model": "nobody"}), line("refused", "script:long")]
    async with an_office(tmp_path) as office:
        office.engine.scripts["long"] = too_long
        client = office.batches.client()
        done = await office.batches.wait_over(client, (await begin(client, jsonl(lines))).id)
        errors = await results(client, done.error_file_id)

        counts = done.request_counts
        assert (done.status, counts.total, counts.completed, counts.failed) == ("completed", 3, 1, 2)
        assert {"good"} == set(await results(client, done.output_file_id))
        assert {name: one["response"]["status_code"] for name, one in errors.items()} == {
            "unknown": 404,
            "refused": 400,
        }
        assert errors["unknown"]["response"]["body"]["error"]["code"] == "model_not_found"


async def test_inputs_that_cannot_be_sent_fail_before_anything_is_sent(tmp_path: Path) -> None:
    """A batch whose input is not valid fails as a whole, says which line and why, and costs nothing; a wish that
    cannot be met, or a key without class offline, is refused at once.
    """
    cases = {
        "invalid_json_line": jsonl([line("1")]) + b"{oops\n",
        "duplicate_custom_id": jsonl([line("1"), line("1")]),
        "mismatched_url": jsonl([line("1", url="/v1/embeddings")]),
        "invalid_method": jsonl([line("1", method="GET")]),
        "invalid_custom_id": jsonl([line("")]),
        "invalid_request": jsonl([line("1", body={"stream": True})]),
        "empty_file": b"\n\n",
        "too_many_lines": jsonl(line(str(number)) for number in range(6)),
    }
    key, record = new_key("strict")
    tenants = {"default": {}, "strict": {"classes": ["interactive", "standard"]}}
    async with an_office(tmp_path, (record,), tenants=tenants, batch={"open_batches": 1, "lines": 5}) as office:
        client = office.batches.client()
        for code, content in cases.items():
            done = await office.batches.wait_over(client, (await begin(client, content)).id)
            assert (code, "failed") == (done.errors.data[0].code, done.status)
        assert office.engine.seen == []
        five = await begin(client, jsonl(line(str(number)) for number in range(5)))
        assert (await office.batches.wait_over(client, five.id)).status == "completed"
        for wish, param in (
            ({"endpoint": "/v1/messages"}, "endpoint"),
            ({"completion_window": "a while"}, "completion_window"),
            ({"completion_window": "8d"}, "completion_window"),
            ({"metadata": {"k": "v" * 513}}, "metadata"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await begin(client, jsonl([line("1")]), **wish)
            assert param == caught.value.param
        with pytest.raises(openai.PermissionDeniedError):
            await begin(office.batches.client(key), jsonl([line("1")]))
        waiting = await begin(client, jsonl([line("1", "script:wait")]))
        with pytest.raises(openai.RateLimitError):
            await begin(client, jsonl([line("1")]))
        with pytest.raises(openai.ConflictError):
            await client.files.delete(waiting.input_file_id)


async def test_a_cancelled_batch_ends_with_what_it_has(tmp_path: Path) -> None:
    """Lines in flight are dropped at the engine at once; answers so far stay, other lines say that they have none."""
    names = [f"n{number}" for number in range(12)]
    lines = [line(name, "hi" if number < 3 else "script:wait") for number, name in enumerate(names)]
    async with an_office(tmp_path, batch={"concurrency": 4}) as office:
        client = office.batches.client()
        made = await begin(client, jsonl(lines))
        await office.batches.wait_until(client, made.id, lambda batch: batch.request_counts.completed == 3)
        await office.wait_open(4)
        cancelling = await client.batches.cancel(made.id)
        done = await office.batches.wait_over(client, made.id)

        assert (cancelling.status, done.status) == ("cancelling", "cancelled")
        assert set(await results(client, done.output_file_id)) == {"n0", "n1", "n2"}
        errors = await results(client, done.error_file_id)
        assert set(errors) == set(names[3:])
        assert {one["error"]["code"] for one in errors.values()} == {"batch_cancelled"}
        await office.batches.gateway.wait_idle()
        await office.wait_open(0)
        with pytest.raises(openai.ConflictError):
            await client.batches.cancel(made.id)


async def test_a_batch_ends_with_its_window(tmp_path: Path) -> None:
    """What is not answered when the window ends gets batch_expired as its answer."""
    async with an_office(tmp_path) as office:
        client = office.batches.client()
        made = await begin(client, jsonl([line("a"), line("b", "script:wait")]), completion_window="2s")
        done = await office.batches.wait_over(client, made.id)

        assert (done.status, done.request_counts.failed) == ("expired", 1)
        assert (await results(client, done.error_file_id))["b"]["error"]["code"] == "batch_expired"
        assert "a" in await results(client, done.output_file_id)


async def test_limits_and_suspensions_hold_lines_back_and_fail_none(tmp_path: Path) -> None:
    """A batch over its tenant's limit waits; one whose tenant is suspended pauses, and goes on when it may again."""
    tenants = {"default": {"limits": {"concurrent_offline": 1}}}
    async with an_office(tmp_path, tenants=tenants) as office:
        client = office.batches.client()
        made = await begin(client, jsonl(line(str(number), "script:wait") for number in range(3)))
        async with asyncio.timeout(30):
            while not office.engine.seen:
                await asyncio.sleep(0.01)
        suspended = office.batches.gateway.declaration.model_copy(deep=True)
        suspended.tenants["default"].__dict__["suspended"] = True
        allowed = office.batches.gateway.declaration
        assert (await office.batches.gateway.configure(suspended)).ok
        office.serve(3)
        with pytest.raises(openai.PermissionDeniedError):
            await client.batches.retrieve(made.id)
        await office.batches.gateway.wait_idle()
        assert len(office.engine.seen) == 1

        assert (await office.batches.gateway.configure(allowed)).ok
        done = await office.batches.wait_over(client, made.id)
        assert (done.status, done.request_counts.completed) == ("completed", 3)
        assert len(office.engine.seen) == 3


async def test_a_batch_gives_way_to_a_caller(tmp_path: Path) -> None:
    """A person's request gets a place at once, though the batch came first and has filled all of them."""
    async with an_office(tmp_path, pool={"queue": {"sequences": 2}}, batch={"concurrency": 8}) as office:
        client = office.batches.client()
        made = await begin(client, jsonl(line(str(number), "script:wait") for number in range(20)))
        async with asyncio.timeout(30):
            while not await office.batches.gateway.metric('headrace_queue_waiting_requests{class="offline",model="m"'):
                await asyncio.sleep(0.02)
        body = line("person", "script:wait")["body"]
        headers = {"x-headrace-class": "interactive"}
        person = asyncio.ensure_future(client.chat.completions.create(**body, extra_headers=headers))
        async with asyncio.timeout(30):
            while not office.times_seen("person"):
                await asyncio.sleep(0.01)
        assert (await client.batches.retrieve(made.id)).request_counts.completed == 0

        office.serve(60)
        assert (await person).choices
        done = await office.batches.wait_over(client, made.id)
        assert (done.status, done.request_counts.completed) == ("completed", 20)
