"""Batches over crashes and a full disk: each line is answered once all the same."""

import asyncio
import json
import resource
from collections import Counter
from pathlib import Path

import openai
import pytest
from tests.harness.batch_lines import an_office, begin, jsonl, line, results
from tests.harness.journal_records import records_of


async def test_a_killed_batch_process_goes_on_where_it_was(tmp_path: Path) -> None:
    """kill -9 in the middle, twice: each line is in the output once; only lines in flight were sent again."""
    names = [f"n{number}" for number in range(30)]
    async with an_office(tmp_path, batch={"concurrency": 4}) as office:
        client = office.batches.client()
        made = await begin(client, jsonl(line(name, "script:wait") for name in names))
        for turns, answered in ((7, 7), (8, 15)):
            office.serve(turns)
            await office.batches.wait_until(
                client, made.id, lambda batch, n=answered: batch.request_counts.completed == n
            )
            await office.batches.stop()
            await office.wait_open(0)
            office.batches.start()
        office.serve(40)
        done = await office.batches.wait_over(client, made.id)
        answers = await results(client, done.output_file_id)

        assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 30, 0)
        assert set(answers) == set(names)
        sent = {name: office.times_seen(name) for name in names}
        assert sum(sent.values()) <= 30 + 2 * 4
        await office.batches.gateway.stop()
        lines = [
            one for one in records_of(office.batches.gateway.settings.journal_dir) if one["requested_model"] == "m"
        ]
        completed = Counter(one["request_id"] for one in lines if one["outcome"] == "completed")
        assert completed == {f"{made.id}-{number}": 1 for number in range(30)}


async def test_a_full_disk_loses_no_answer(tmp_path: Path) -> None:
    """While nothing can be written, answers wait and uploads are refused; with room again, all is as it should be."""
    async with an_office(tmp_path) as office:
        client = office.batches.client()
        made = await begin(client, jsonl(line(str(number), "script:wait") for number in range(6)))
        office.serve(1)
        await office.batches.wait_until(client, made.id, lambda batch: batch.request_counts.completed == 1)
        process = office.batches.process
        assert process is not None
        unbounded = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        office.serve(5)
        with pytest.raises(openai.InternalServerError) as caught:
            await client.files.create(file=("in.jsonl", b"x" * 100), purpose="batch")
        assert caught.value.code == "store_unavailable"
        async with asyncio.timeout(30):
            while len(office.engine.seen) < 6:
                await asyncio.sleep(0.02)
        await office.wait_open(0)
        assert (await client.batches.retrieve(made.id)).request_counts.completed == 1

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unbounded)
        done = await office.batches.wait_over(client, made.id)
        assert (done.status, len(await results(client, done.output_file_id))) == ("completed", 6)
        assert [office.times_seen(str(number)) for number in range(6)] == [1] * 6
        assert not [path for path in (office.batches.folder / "files").iterdir() if path.name.startswith(".")]
        assert json.loads((await client.files.content(made.input_file_id)).text.splitlines()[0])["custom_id"] == "0"
