"""`headrace engine verify` against the real engine: what headrace passes and reads is what this version has."""

import json
import subprocess
import sys

import httpx
import pytest
from tests.real.serving import RealEngine

pytestmark = pytest.mark.timeout(900)


def test_every_flag_and_metric_is_there(running: RealEngine) -> None:
    """No flag that headrace can pass and no metric that it reads is missing or renamed in the engine that runs."""
    body = {"model": running.served_model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 60}
    for _ in range(2):
        assert httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=120).status_code == 200
    where = ["--python", str(running.python), "--url", running.url, "--version", running.version]
    argv = [sys.executable, "-m", "headrace.cli.main", "engine", "verify", running.kind.value, *where, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["data"]
    assert found
