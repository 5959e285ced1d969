"""Streams that are open while headrace is replaced: each ends as if nothing had happened, to the byte."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import DEADLINE_S, Instance, wait_until

STREAMS = 4


class OpenStream(threading.Thread):
    """One caller that reads its stream event by event."""

    def __init__(self, instance: Instance, until: Path) -> None:
        super().__init__(daemon=True)
        self.events: list[str] = []
        self.failure: str | None = None
        self._instance = instance
        self._until = until

    def run(self) -> None:
        body = {"model": "tiny", "messages": [], "stream": True, "metadata": {"until": str(self._until)}}
        headers = {"authorization": f"Bearer {self._instance.key}", "content-type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self._instance.port, timeout=DEADLINE_S)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            while line := response.readline():
                if line != b"\n":
                    self.events.append(line.decode().strip().removeprefix("data: "))
        except (OSError, http.client.HTTPException) as error:
            self.failure = repr(error)
        finally:
            connection.close()

    @property
    def text(self) -> str:
        chunks = [json.loads(event) for event in self.events if event != "[DONE]"]
        return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    made.declaration["gateway"]["drain_s"] = DEADLINE_S
    made.write()
    yield made
    made.end()


def test_streams_open_across_an_upgrade_finish_untouched(instance: Instance, tmp_path: Path) -> None:
    """`reload --upgrade` waits for the worker that leaves, which brings its streams to their end; engines go on."""
    instance.up()
    engines, [worker] = instance.engine_pids(), instance.status()["workers"]
    until = tmp_path / "until"
    streams = [OpenStream(instance, until) for _ in range(STREAMS)]
    for stream in streams:
        stream.start()
    wait_until(lambda: all(stream.events for stream in streams), "the first events")

    reload = instance.begin("reload", "--upgrade")
    wait_until(lambda: any(one["pid"] != worker["pid"] for one in instance.status()["workers"]), "the new gateway")
    assert reload.poll() is None, "it waits for the streams"
    assert instance.call() == 200, "new requests are served meanwhile"
    before = [len(stream.events) for stream in streams]
    wait_until(
        lambda: all(len(stream.events) > count for stream, count in zip(streams, before, strict=True)),
        "events by the worker that leaves",
    )
    until.touch()
    for stream in streams:
        stream.join(DEADLINE_S)

    for stream in streams:
        assert stream.failure is None
        numbers = [int(number) for number in stream.text.split()]
        assert numbers == list(range(len(numbers))), "no event lost, none twice"
        assert stream.events[-1] == "[DONE]"
        assert stream.events.count("[DONE]") == 1
    assert instance.engine_pids() == engines
    _, said = reload.communicate(timeout=DEADLINE_S)
    assert reload.returncode == 0, said
    assert f"finishes {STREAMS} request(s)" in said
    assert worker["pid"] not in instance.processes()
