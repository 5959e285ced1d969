"""What the model tests share: a spoilable file server, a quick-tempered fetch policy, a store in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures.file_server import FileServer, serving

from headrace.fleet.deploy.models.download import FetchPolicy
from headrace.fleet.deploy.models.store import ModelStore

QUICK = FetchPolicy(connect_timeout_s=10, stall_timeout_s=2, attempts=3, backoff_s=0.01, backoff_max_s=0.05)


@pytest.fixture
def file_server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, file_server: FileServer) -> ModelStore:
    """A store that sees only the local server."""
    environ = {"PIP_INDEX_URL": f"{file_server.url}/simple", "HF_ENDPOINT": file_server.url, "HF_TOKEN": "hf-secret"}
    return ModelStore(tmp_path / "cache", environ=environ, policy=QUICK)
