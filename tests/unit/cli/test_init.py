"""headrace init."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.declaration.load import load_declaration

CARDS = {"object": "list", "data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm", "max_model_len": 40960}]}


class ModelList(BaseHTTPRequestHandler):
    """Answers GET /v1/models as vLLM does."""

    def do_GET(self) -> None:
        body = json.dumps(CARDS).encode() if self.path == "/v1/models" else b"{}"
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def engine_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelList)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def nothing_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that happen to run on this machine do not matter to the tests."""
    monkeypatch.setattr("headrace.cli.init.USUAL_URLS", ("http://127.0.0.1:1",))


def test_it_writes_a_declaration_that_loads(run, tmp_path: Path) -> None:
    """The first file is valid, commented, and the one that `headrace up` would find."""
    ran = run("init")
    assert (ran.code, ran.err) == (0, "")
    path = tmp_path / "headrace.yaml"
    assert load_declaration(path, environ={}).warnings == ()
    assert path.stat().st_mode & 0o777 == 0o644
    assert "# " in path.read_text()
    assert run("check", "--elsewhere").code == 0


def test_it_never_replaces_a_file_silently(run, tmp_path: Path) -> None:
    """An existing declaration stays as it is unless --force is given."""
    (tmp_path / "headrace.yaml").write_text("mine")
    ran = run("init")
    assert ran.code == 1
    assert "exists already" in ran.err
    assert (tmp_path / "headrace.yaml").read_text() == "mine"
    assert run("init", "--force").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["headrace.yaml"]


def test_an_engine_that_runs_becomes_the_pool(run, tmp_path: Path, engine_url: str) -> None:
    """--endpoint asks the engine what it is and which model it serves."""
    assert run("init", "-o", "x.yaml", "--endpoint", engine_url + "/v1/").code == 0
    declaration = load_declaration(tmp_path / "x.yaml", environ={}).declaration
    (pool,) = declaration.pools.values()
    assert (pool.model, pool.engine.value, pool.endpoints) == ("Qwen/Qwen3-8B", "vllm", (engine_url,))
    assert declaration.models["Qwen/Qwen3-8B"].context_tokens == 40960


def test_engines_on_usual_ports_are_found(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine_url: str
) -> None:
    """Nobody has to say that vLLM already runs here."""
    monkeypatch.setattr("headrace.cli.init.USUAL_URLS", ("http://127.0.0.1:1", engine_url))
    ran = run("init", "--json")
    assert json.loads(ran.out)["data"]["engines"][0]["engine"] == "vllm"
    assert f"#   - vllm at {engine_url}" in (tmp_path / "headrace.yaml").read_text()


def test_an_endpoint_that_does_not_answer_fails(run, tmp_path: Path) -> None:
    """A URL where nothing answers writes no file."""
    ran = run("init", "--endpoint", "http://127.0.0.1:1")
    assert ran.code == 1
    assert "no engine answers at http://127.0.0.1:1" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_named(run) -> None:
    """The message names the folder rather than a temporary file."""
    ran = run("init", "-o", "nowhere/headrace.yaml")
    assert ran.code == 1
    assert "nowhere does not exist" in ran.err
