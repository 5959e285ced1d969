"""Batches of a whole instance that is killed in the middle of one: supervisor, gateway and batch process."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.drill.instance import Instance, wait_until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.end()


def lines(count: int, sleep_s: float) -> bytes:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "metadata": {"sleep_s": str(sleep_s)}}
    line = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    return b"".join(json.dumps({"custom_id": f"n{number}", **line}).encode() + b"\n" for number in range(count))


def test_an_instance_killed_within_a_batch_ends_it_after_the_next_start(instance: Instance) -> None:
    """kill -9 of everything: the next start goes on by itself, and each line has one answer."""
    instance.up()
    with OpenAI(base_url=f"http://127.0.0.1:{instance.port}/v1", api_key=instance.key) as client:
        assert not [command for command in instance.processes().values() if "headrace.batch" in command]
        file = client.files.create(file=("in.jsonl", lines(60, 0.05)), purpose="batch")
        made = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

        def batch() -> Any:
            return client.batches.retrieve(made.id)

        wait_until(lambda: batch().request_counts.completed >= 10, "the first answers")
        for pid in instance.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it went with its parent
        wait_until(lambda: not instance.processes(), "everything dead")

        instance.up()
        wait_until(lambda: batch().status == "completed", "the end of the batch")
        done = batch()
        answers = [json.loads(text) for text in client.files.content(done.output_file_id).text.splitlines()]
        assert (done.request_counts.completed, done.request_counts.failed) == (60, 0)
        assert sorted(one["custom_id"] for one in answers) == sorted(f"n{number}" for number in range(60))


def test_a_batch_goes_on_beside_people_a_crash_and_an_upgrade(instance: Instance) -> None:
    """Ordinary requests are answered beside a batch; it outlives its own process and an upgrade of everything."""
    instance.declaration["gateway"]["workers"] = 2
    instance.write()
    instance.up()
    url = f"http://127.0.0.1:{instance.port}/v1"
    with OpenAI(base_url=url, api_key=instance.key, max_retries=5) as client:
        file = client.files.create(file=("in.jsonl", lines(80, 0.05)), purpose="batch")
        made = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        statuses: list[int] = []
        people = [threading.Thread(target=lambda: statuses.append(instance.call(0.01))) for _ in range(20)]
        for person in people:
            person.start()
        for person in people:
            person.join()
        assert statuses == [200] * 20

        [pid] = [pid for pid, command in instance.processes().items() if "headrace.batch" in command]
        os.kill(pid, signal.SIGKILL)
        assert instance.run("reload", "--upgrade").returncode == 0
        wait_until(lambda: client.batches.retrieve(made.id).status == "completed", "the end of the batch")
        done = client.batches.retrieve(made.id)
        answers = [json.loads(text) for text in client.files.content(done.output_file_id or "").text.splitlines()]
        assert sorted(one["custom_id"] for one in answers) == sorted(f"n{number}" for number in range(80))
    assert instance.run("down").returncode == 0
    assert not instance.processes()
