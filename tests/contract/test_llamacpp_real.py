"""The llama.cpp driver and process against the real engine with the real model."""

import json
import math
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import gguf
import httpx
import pytest
from tests.fixtures.engine import RunningEngine, fetch_bundled_model, probe, running_engine

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.engines.contract import ProbeReply, ProbeVerdict
from headrace.engines.llamacpp.driver import LlamacppDriver
from headrace.engines.self_report import read_self_report

pytestmark = pytest.mark.engine

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
LONG_ANSWER = {"max_tokens": 1500, "ignore_eos": True, "temperature": 0}
QUESTIONS = [
    ("What is the capital of France?", "paris"),
    ("How many days are in a week?", "7"),
    ("What colour is the sky on a clear day?", "blue"),
    ("Name the opposite of hot.", "cold"),
    ("What language is spoken in Spain?", "spanish"),
]
"""Those of the ten questions of docs/decisions/0006 that the model answers rightly in its original form."""


@pytest.fixture
def engine(embedded_engine: RunningEngine) -> Iterator[RunningEngine]:
    """The shared engine, idle before and after."""
    yield embedded_engine
    wait_until(lambda: embedded_engine.busy_slots() == 0, 60)


def wait_until(is_so: Callable[[], bool], bound_s: float, *, poll_s: float = 0.02) -> float:
    """Poll until `is_so`, and return how long it took."""
    started_mono_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - started_mono_s < bound_s, f"not so after {bound_s} s"
        time.sleep(poll_s)
    return time.monotonic() - started_mono_s


def chat(engine: RunningEngine, **body: object) -> httpx.Response:
    return httpx.post(f"{engine.url}/v1/chat/completions", json={"messages": CAPITAL, **body}, timeout=90)


def open_request(engine: RunningEngine, body: dict[str, object]) -> socket.socket:
    """Send a request on a bare socket, so that the test decides when it is closed."""
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {engine.host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    connection = socket.create_connection((engine.host, engine.port))
    connection.sendall(head.encode() + content)
    return connection


def events_of(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]


def test_loading_is_seen_and_never_taken_for_ready(engine: RunningEngine):
    """Probes say dead (nothing listens yet) or loading, then ready; READY means that it answers."""
    assert engine.verdicts[-1] is ProbeVerdict.READY
    assert set(engine.verdicts[:-1]) <= {ProbeVerdict.DEAD, ProbeVerdict.LOADING}
    assert chat(engine, max_tokens=1).status_code == 200


def test_it_says_which_build_it_is(engine: RunningEngine):
    """Two builds do not hand prompts over to each other: the gateway knows them apart by this."""
    answer = httpx.get(f"{engine.url}/props")
    told = read_self_report(EngineKind.LLAMACPP, ProbeReply(status=answer.status_code, body=answer.content), {})
    assert told.version


def test_the_model_is_what_was_converted(engine: RunningEngine):
    """The engine runs the q8_0 file, with the declared slots and context."""
    props = httpx.get(f"{engine.url}/props").json()
    assert props["total_slots"] == 4
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert props["model_path"] == str(fetch_bundled_model())
    kinds = {tensor.tensor_type.name for tensor in gguf.GGUFReader(fetch_bundled_model()).tensors}
    assert kinds == {"Q8_0", "F32"}


@pytest.mark.parametrize(("question", "expected"), QUESTIONS)
def test_the_converted_model_still_knows_what_it_knew(engine: RunningEngine, question: str, expected: str):
    """Simple questions are answered as before the conversion."""
    answer = chat(engine, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=40).json()
    assert expected in answer["choices"][0]["message"]["content"].lower()


def test_an_answer_carries_honest_usage(engine: RunningEngine):
    """Prompt, cached and answered tokens are in the answer, and a repeat is served from the cache."""
    first = chat(engine, max_tokens=5, temperature=0).json()["usage"]
    again = chat(engine, max_tokens=5, temperature=0).json()["usage"]
    assert first["completion_tokens"] == again["completion_tokens"] == 5
    assert again["prompt_tokens"] == first["prompt_tokens"]
    assert again["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"] - 1


def test_a_stream_ends_with_usage_and_done(engine: RunningEngine):
    """include_usage gives one more event with empty choices before the end marker."""
    response = chat(engine, max_tokens=4, stream=True, stream_options={"include_usage": True})
    events = events_of(response)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    usage_event = json.loads(events[-2])
    assert usage_event["choices"] == []
    assert usage_event["usage"]["completion_tokens"] == 4
    assert all("usage" not in json.loads(event) for event in events[:-2])


def test_the_limit_under_another_name_is_the_same_limit(engine: RunningEngine):
    """llama.cpp lets n_predict override max_tokens: why the driver lists it as an output limit."""
    assert chat(engine, max_tokens=2, n_predict=6, ignore_eos=True).json()["usage"]["completion_tokens"] == 6
    assert "n_predict" in LlamacppDriver().dialect.output_limit_aliases


@pytest.mark.parametrize("path", sorted(LlamacppDriver.dialect.paths))
def test_every_path_of_the_dialect_is_served(engine: RunningEngine, embedding_engine: RunningEngine, path: str):
    """Each path answers 200 to its smallest request."""
    bodies = {
        "/v1/chat/completions": {"messages": CAPITAL, "max_tokens": 1},
        "/v1/completions": {"prompt": "a", "max_tokens": 1},
        "/v1/embeddings": {"input": "a"},
        "/v1/responses": {"input": "a", "max_output_tokens": 1},
        "/v1/messages": {"messages": CAPITAL, "max_tokens": 1},
    }
    target = embedding_engine if path == "/v1/embeddings" else engine
    assert httpx.post(target.url + path, json=bodies[path], timeout=60).status_code == 200


def test_a_closed_stream_frees_its_slot_at_once(engine: RunningEngine):
    """A caller that leaves in the middle of a stream is noticed long before its answer would end (measured: 0.04 s)."""
    connection = open_request(engine, {"prompt": "Once", "stream": True, **LONG_ANSWER})
    assert b"data: " in read_until(connection, b"data: ")
    assert engine.busy_slots() == 1
    connection.close()
    wait_until(lambda: engine.busy_slots() == 0, 5)


def test_a_closed_whole_answer_frees_its_slot_when_nothing_else_runs(engine: RunningEngine):
    """Without a stream llama.cpp looks once a second whether the caller is still there, and only while no other
    request gets results (asking for slots is one); so here one slot is asked for seldom.
    """
    connection = open_request(engine, {"prompt": "Once", **LONG_ANSWER})
    wait_until(lambda: engine.busy_slots() == 1, 10)
    connection.close()
    wait_until(lambda: engine.busy_slots() == 0, 8, poll_s=1.3)  # the whole answer would take longer


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return received


def test_an_over_long_prompt_is_our_error_with_both_numbers(engine: RunningEngine):
    """The engine's own words become context_too_long, in a stream too, and the engine lives on."""
    long_prompt = [{"role": "user", "content": "word " * 3000}]
    for is_stream in (False, True):
        response = chat(engine, messages=long_prompt, stream=is_stream)
        error = LlamacppDriver().translate_error(response.status_code, response.content)
        assert error.code is ErrorCode.CONTEXT_TOO_LONG
        assert "2048" in error.message
    assert chat(engine, max_tokens=1).status_code == 200


def test_a_schema_is_kept_to(engine: RunningEngine):
    """response_format with a JSON schema gives JSON of that schema."""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "rank": {"type": "integer"}},
        "required": ["city", "rank"],
        "additionalProperties": False,
    }
    response_format = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    answer = chat(engine, response_format=response_format, temperature=0, max_tokens=80).json()
    made = json.loads(answer["choices"][0]["message"]["content"])
    assert set(made) == {"city", "rank"}
    assert isinstance(made["rank"], int)


def test_embeddings_are_unit_vectors_and_alike_for_alike_texts(embedding_engine: RunningEngine):
    """A pool with embeddings answers with vectors of length one, in the order asked."""
    body = {"input": ["The cat sleeps.", "A cat is sleeping.", "Interest rates rose sharply."]}
    answer = httpx.post(f"{embedding_engine.url}/v1/embeddings", json=body, timeout=60).json()
    first, second, third = (item["embedding"] for item in answer["data"])
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    assert math.isclose(math.fsum(value * value for value in first), 1, abs_tol=1e-3)
    assert dot(first, second) > dot(first, third)
    assert answer["usage"]["prompt_tokens"] > 0


def dot(left: list[float], right: list[float]) -> float:
    return math.fsum(one * other for one, other in zip(left, right, strict=True))


def test_no_web_page_may_call_the_engine(engine: RunningEngine):
    """llama.cpp's default lets any site in the operator's browser use it; ours names an origin that cannot be."""
    allowed = httpx.get(f"{engine.url}/v1/models", headers={"origin": "http://evil.example"}).headers
    assert allowed.get("access-control-allow-origin") != "http://evil.example"
    assert httpx.get(engine.url).status_code == 404


def test_metrics_slots_and_saved_slots_are_on(engine: RunningEngine):
    """What later parts build on: metrics, the list of slots, and saving a slot to disk."""
    assert "llamacpp:requests_processing" in httpx.get(f"{engine.url}/metrics").text
    saved = httpx.post(f"{engine.url}/slots/0?action=save", json={"filename": "test.bin"}, timeout=30)
    assert saved.status_code == 200


def test_many_waiting_requests_do_not_block_the_probe():
    """With far more requests than slots, the engine still says that it lives."""
    with running_engine() as engine:
        body: dict[str, object] = {"prompt": "Once", "stream": True, **LONG_ANSWER}
        waiting = [open_request(engine, body) for _ in range(60)]
        assert LlamacppDriver().read_probe(probe(f"{engine.url}/health")) is ProbeVerdict.READY
        for connection in waiting:
            connection.close()


def test_prompts_are_not_in_the_log(engine: RunningEngine):
    """The engine's own log never holds what callers wrote."""
    chat(engine, messages=[{"role": "user", "content": "canary-7f3a"}], max_tokens=1)
    assert "canary-7f3a" not in engine.log()


def test_sigterm_lets_a_running_answer_finish_then_exits_cleanly():
    """Stopping an engine cuts no stream; with nothing left to do it exits with 0."""
    with running_engine() as engine:
        if "llama-server" in str(engine.process.args):
            pytest.skip("a native llama-server ends its streams itself")
        body = {"messages": CAPITAL, "max_tokens": 60, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{engine.url}/v1/chat/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            engine.process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert engine.process.wait(30) == 0


def test_a_second_sigterm_does_not_wait():
    """An operator in a hurry is obeyed."""
    with running_engine() as engine:
        if "llama-server" in str(engine.process.args):
            pytest.skip("a native llama-server ends its streams at the first one")
        connection = open_request(engine, {"prompt": "Once", "stream": True, **LONG_ANSWER})
        read_until(connection, b"data: ")
        engine.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            engine.process.wait(1)
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(30) == 0
        connection.close()


def test_a_dead_engine_is_seen_as_dead():
    """After kill -9 the probe says dead at once."""
    with running_engine() as engine:
        engine.process.kill()
        engine.process.wait()
        assert LlamacppDriver().read_probe(probe(f"{engine.url}/health")) is ProbeVerdict.DEAD
