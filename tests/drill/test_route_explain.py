"""`headrace route explain` and `headrace cache` on a running instance of two simulated replicas."""

import json
import sys
from pathlib import Path

from tests.drill.instance import Instance

UNKNOWN = (
    *(("quota", "--tenant", "nope"), ("quota", "--project", "nope"), ("quota", "--key", "nope")),
    *(("budget", "--tenant", "nope"), ("queue", "--model", "nope"), ("engine", "restart", "nope/0")),
    *(("route", "explain", "--request", "request.json", "--tenant", "nope"), ("route", "advise", "--pool", "nope")),
)
"""Names that a running instance does not have, as `tests/unit/cli/test_exit_codes.py` expects them."""

PROMPT = "The miller asks where the water goes. " * 30


def test_operators_see_where_a_request_goes_and_what_is_cached(tmp_path: Path) -> None:
    """After a conversation's first turn, the explanation of the next one names the replica that holds it, and the hit
    of the next one is counted. A name or a file that the instance does not have is refused."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    instance = Instance(tmp_path)
    program = [sys.executable, "-m", "headrace", "sim", "engine", "--dialect", "vllm", "--step-ms", "2", "--"]
    instance.declaration["models"]["tiny"] = {"source": "file:model", "context_tokens": 2048}
    instance.declaration["pools"]["chat"] = {
        "model": "tiny",
        "engine": "vllm",
        "replicas": 2,
        "stop_s": 5,
        "runtime": {"command": program, "device": "cpu"},
    }
    instance.write()
    messages = [{"role": "user", "content": PROMPT}]
    try:
        instance.up()
        assert instance.ask(messages=messages, max_tokens=4)[0] == 200
        request = tmp_path / "request.json"
        request.write_text(json.dumps({"model": "tiny", "messages": [*messages, {"role": "user", "content": "And?"}]}))
        told = instance.run("route", "explain", "--request", str(request), "--json")
        assert told.returncode == 0, told.stderr
        found = json.loads(told.stdout)["data"]
        assert found["picked"] == found["candidates"][0]["endpoint"]
        assert found["candidates"][0]["cached_tokens"] > 100
        assert "picked" in instance.run("route", "explain", "--request", str(request)).stdout
        assert instance.ask(messages=[*messages, {"role": "user", "content": "And?"}], max_tokens=4)[0] == 200
        (tenant,) = json.loads(instance.run("cache", "--json").stdout)["data"]["tenants"]
        assert (tenant["requests"], tenant["cached_tokens"] > 200) == (2, True)
        assert found["picked"] in instance.run("cache").stdout
        for words in UNKNOWN:
            told = instance.run(*words)
            assert (told.returncode, "nope" in told.stderr) == (2, True), (words, told.stderr)
        other = instance.run("reload", "--dry-run", "--config", str(request))
        assert (other.returncode, f"runs on {instance.config}" in other.stderr) == (1, True)
        assert instance.run("reload", "--dry-run", "-c", instance.config.name).returncode == 0
    finally:
        instance.end()
