"""Asking a running engine what it is."""

import json
from collections.abc import Iterator

import pytest
from tests.fixtures.engine import RunningEngine
from tests.fixtures.file_server import FileServer, serving
from tests.harness.ports import free_port

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.attach import EndpointUnreachableError, detect_engine


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as running:
        yield running


async def test_engine_and_models_are_found(server: FileServer):
    """A URL is enough; a trailing /v1 does not matter, and credentials are sent along."""
    listed = {"data": [{"id": "qwen", "owned_by": "vllm"}]}
    server.files["/v1/models"] = json.dumps(listed).encode()
    server.files["/version"] = b'{"version": "0.33.0"}'
    for url in (server.url, f"{server.url}/", f"{server.url}/v1"):
        found = await detect_engine(url, {"authorization": "Bearer key"})
        assert (found.engine, found.models, found.version) == (EngineKind.VLLM, ("qwen",), "0.33.0")
    assert {credential for _, _, credential in server.requests} == {"Bearer key"}


async def test_nothing_at_the_url_is_an_error_that_names_it():
    """Refused connections and nonsense URLs say what to check."""
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EndpointUnreachableError, match=f"no engine answers at {url}"):
        await detect_engine(url)
    with pytest.raises(EndpointUnreachableError, match="scheme"):
        await detect_engine("no-scheme:80")


async def test_a_server_that_is_no_engine_is_refused(server: FileServer):
    """A web server, or headrace's own control port, is not governed by accident; the message says what it answered."""
    with pytest.raises(EndpointUnreachableError, match=r"GET /v1/models gives HTTP 404\. Check host, port and path"):
        await detect_engine(server.url)
    server.files["/v1/models"] = b"<html>"
    with pytest.raises(EndpointUnreachableError, match="gives no list of models"):
        await detect_engine(server.url)


@pytest.mark.engine
async def test_the_real_llama_cpp_is_found(embedded_engine: RunningEngine):
    """The embedded engine is recognised with the name it serves its model by."""
    found = await detect_engine(embedded_engine.url)
    assert (found.engine, found.models) == (EngineKind.LLAMACPP, (embedded_engine.model,))
