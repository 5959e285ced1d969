"""Engines that run elsewhere, asked before the start."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fixtures.file_server import FileServer, serving
from tests.harness.ports import free_port

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.endpoint_checks import check_endpoints


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as running:
        yield running


def found(url: str, **pool: Any) -> Finding:
    declared = {"model": "qwen", "engine": "vllm", "endpoints": [url], **pool}
    [finding] = check_endpoints(Declaration.model_validate({"models": {"qwen": {}}, "pools": {"p": declared}}))
    return finding


def test_an_engine_that_serves_the_declared_name_is_fine(server: FileServer) -> None:
    """Asked with the declared credentials, for the name that requests will carry."""
    server.files["/v1/models"] = json.dumps({"data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm"}]}).encode()
    finding = found(server.url, served_model="Qwen/Qwen3-8B", credentials={"bearer": "key"})
    assert (finding.level, finding.seen) == (Level.OK, f"pools.p.endpoints[0] {server.url} serves Qwen/Qwen3-8B")
    assert {credential for _, _, credential in server.requests} == {"Bearer key"}


def test_an_engine_that_knows_another_name_is_said_with_the_key_to_set(server: FileServer) -> None:
    """Before the first caller pays for it; llama.cpp answers to any name."""
    server.files["/v1/models"] = json.dumps({"data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm"}]}).encode()
    finding = found(server.url)
    assert (finding.level, finding.remedy) == (Level.WARN, "Set pools.p.served_model to one of them.")
    assert "serves Qwen/Qwen3-8B, and no qwen" in finding.seen
    assert found(server.url, engine="llamacpp").level is Level.OK


def test_what_is_away_or_no_engine_is_a_warning(server: FileServer) -> None:
    """It may come up later: nothing is refused."""
    dead = f"http://127.0.0.1:{free_port()}"
    assert found(dead).level is Level.WARN
    assert f"pools.p.endpoints[0] {dead}: " in found(dead).seen
    assert "GET /v1/models gives HTTP 404, which is not vllm's answer" in found(server.url).seen
    assert found(server.url, engine="openai").level is Level.WARN


def test_nobody_is_asked_where_headrace_runs_the_engines() -> None:
    """Pools of our own have their checks."""
    declared = {"models": {"m": {"source": "file:/m"}}, "pools": {"p": {"model": "m"}}}
    assert check_endpoints(Declaration.model_validate(declared)) == ()
