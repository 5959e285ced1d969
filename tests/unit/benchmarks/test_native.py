"""The mock engine and the load client, as real processes: what one sends the other must count exactly."""

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.machine import read_machine
from benchmarks.mock import start_mock
from benchmarks.native import NativePrograms, build_native
from benchmarks.running import Running

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang")), reason="make bench needs a C compiler"
)


@pytest.fixture(scope="module")
def native() -> NativePrograms:
    return build_native()


@pytest.fixture
def mock(native: NativePrograms, tmp_path: Path) -> Iterator[Running]:
    started = start_mock(native, read_machine(), tmp_path)
    yield started
    started.stop()


def load(native: NativePrograms, mock: Running, *arguments: str) -> dict[str, Any]:
    command = [str(native.load), "--port", str(mock.port), *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def metric(mock: Running, name: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", mock.port, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return int(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1])


def test_every_whole_request_is_answered_and_counted(native: NativePrograms, mock: Running) -> None:
    """Client and engine agree on how many requests there were."""
    told = load(native, mock, "--connections", "8", "--requests", "500")
    assert (told["sent"], told["ok"], told["failed"]) == (500, 500, 0)
    assert metric(mock, "mock_requests_total") == 500
    assert told["latency"]["samples"] == 500


@pytest.mark.parametrize("prompt_bytes", [0, 1, 65_536, 300_000])
def test_prompts_of_any_size_are_read_whole(native: NativePrograms, mock: Running, prompt_bytes: int) -> None:
    """Fields after a large prompt are still found: the stream has the length that was asked for."""
    told = load(native, mock, "--prompt-bytes", str(prompt_bytes), "--requests", "4", "--stream", "--chunks", "3")
    assert (told["ok"], told["chunks"]) == (4, 12)


def test_streams_arrive_complete_and_paced(native: NativePrograms, mock: Running) -> None:
    """Every chunk of every stream arrives in order, at the engine's pace."""
    told = load(native, mock, "--connections", "20", "--requests", "40", "--stream", "--chunks", "8")
    assert (told["ok"], told["chunks"]) == (40, 320)
    assert told["gap"]["mean_ms"] > 15
    assert metric(mock, "vllm:num_requests_running") == 0


def test_a_cut_stream_is_never_counted_as_complete(native: NativePrograms, tmp_path: Path) -> None:
    """A stream that ends early is a failure, with its reason."""
    mock = start_mock(native, read_machine(), tmp_path, arguments=("--cut-every", "4"))
    try:
        told = load(native, mock, "--requests", "8", "--stream", "--chunks", "4")
    finally:
        mock.stop()
    assert (told["ok"], told["failed"]) == (6, 2)
    assert told["kinds"]["stream"]["broken"] == 2
    assert "2 of 4 chunks" in told["first_failure"]


def test_an_engine_error_is_a_failure_with_its_status(native: NativePrograms, tmp_path: Path) -> None:
    """Failures are counted by status."""
    mock = start_mock(native, read_machine(), tmp_path, arguments=("--error-every", "5"))
    try:
        told = load(native, mock, "--requests", "20")
    finally:
        mock.stop()
    assert told["kinds"]["plain"]["statuses"] == {"200": 16, "500": 4}


def test_the_mix_sends_exactly_what_it_says(native: NativePrograms, mock: Running) -> None:
    """Cancels, streams and bad requests add up to the number asked for, and the engine saw each of them."""
    told = load(native, mock, "--mix", "--connections", "16", "--requests", "2000", "--chunks", "4")
    assert told["sent"] == 2000 == sum(kind["sent"] for kind in told["kinds"].values())
    assert len(told["kinds"]) == 7
    assert metric(mock, "mock_requests_total") == 2000
    assert metric(mock, "mock_cancelled_total") == pytest.approx(told["kinds"]["cancel"]["sent"], abs=40)
    assert metric(mock, "vllm:num_requests_running") == 0


def test_a_chunked_request_body_is_understood(mock: Running) -> None:
    """Gateways may send bodies chunked."""
    connection = http.client.HTTPConnection("127.0.0.1", mock.port, timeout=10)
    pieces = iter([b'{"model":"m1","mess', b'ages":[]', b"}"])
    connection.request("POST", "/v1/chat/completions", pieces, encode_chunked=True)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["model"] == "m1"
    assert answer["usage"]["total_tokens"] == 168
