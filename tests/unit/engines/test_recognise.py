"""Which engine answers at a URL."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.declaration.starter import FoundEngine, FoundModel
from headrace.domain.endpoint import EngineKind
from headrace.engines.recognise import REPLY_BYTES, recognise_engine


class Server(ThreadingHTTPServer):
    """Answers every GET with `status` and `body`."""

    status = 200
    body = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        self.send_response(server.status)
        self.end_headers()
        try:
            self.wfile.write(server.body)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("card", "engine", "context_tokens"),
    [
        ({"id": "m", "owned_by": "vllm", "max_model_len": 8192}, EngineKind.VLLM, 8192),
        ({"id": "m", "owned_by": "sglang", "max_model_len": 8192}, EngineKind.SGLANG, 8192),
        ({"id": "m", "owned_by": "tensorrt_llm"}, EngineKind.TENSORRT_LLM, None),
        ({"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 4096}}, EngineKind.LLAMACPP, 4096),
        ({"id": "m", "owned_by": "somebody"}, EngineKind.OPENAI, None),
        ({"id": "m"}, EngineKind.OPENAI, None),
    ],
)
def test_each_engine_is_recognised_by_its_model_list(
    server: Server, card: dict[str, object], engine: EngineKind, context_tokens: int | None
) -> None:
    """What owns the models is the engine; an unknown owner is an OpenAI-compatible server."""
    server.body = json.dumps({"object": "list", "data": [card]}).encode()
    models = (FoundModel(name="m", context_tokens=context_tokens),)
    assert recognise_engine(server.url + "/v1/", timeout_s=10) == FoundEngine(
        url=server.url, engine=engine, models=models
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"{}"),
        (500, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b" " * (REPLY_BYTES + 1)),
        (200, b'{"data":[{}]}'),
    ],
)
def test_anything_else_is_no_engine(server: Server, status: int, body: bytes) -> None:
    """A web page or a broken server is not taken for an engine."""
    server.status, server.body = status, body
    assert recognise_engine(server.url, timeout_s=10) is None


def test_a_server_that_wants_a_key_is_found_without_models(server: Server) -> None:
    """401 means that something serves there."""
    server.status = 401
    assert recognise_engine(server.url, timeout_s=10) == FoundEngine(
        url=server.url, engine=EngineKind.OPENAI, models=()
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://", "http://[::bad"])
def test_no_answer_is_no_engine(url: str) -> None:
    """A closed port or a URL that is none finds nothing, without an error."""
    assert recognise_engine(url, timeout_s=10) is None
