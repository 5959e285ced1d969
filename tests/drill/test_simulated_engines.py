"""Simulated engines under the supervisor: `runtime.command` takes the place of the real engine's program."""

import json
import re
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until

from headrace.engines.simulated.text import expected_text


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_simulated_fleet_is_run_like_a_real_one(tmp_path: Path, engine: str) -> None:
    """`up` starts two simulated replicas with the engine's own flags, requests are answered, the engines' events of
    their caches are heard on this machine's own address, and `down` ends them.
    """
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    instance = Instance(tmp_path)
    program = [sys.executable, "-m", "headrace", "sim", "engine", "--dialect", engine, "--step-ms", "2", "--"]
    instance.declaration["models"]["tiny"] = {"source": "file:model", "context_tokens": 512}
    instance.declaration["pools"]["chat"] = {
        "model": "tiny",
        "engine": engine,
        "replicas": 2,
        "stop_s": 5,
        "runtime": {"command": program, "device": "cpu"},
        "telemetry": {"kv_events": True},
    }
    instance.write()
    try:
        instance.up()
        status, body = instance.ask(max_tokens=7)
        assert status == 200, body
        said = json.loads(body)["choices"][0]["message"]["content"]
        assert said == expected_text("tiny", [{"role": "user", "content": "hi"}], 7)
        assert len(instance.engine_pids()) == 2
        wait_until(lambda: tells_of_its_cache(instance), "what the engines tell of their caches")
        status, body = instance.ask(messages=[{"role": "user", "content": "x" * 9000}])
        assert json.loads(body)["error"]["code"] == "context_too_long"
        assert instance.run("down").returncode == 0
        wait_until(lambda: instance.processes() == {}, "the end of all its processes")
    finally:
        instance.end()


def tells_of_its_cache(instance: Instance) -> bool:
    """Ask once more, and look whether stored blocks were told of."""
    text = f"{time.monotonic()} is a number that no prompt has begun with before, so that new blocks are stored for it"
    assert instance.call(messages=[{"role": "user", "content": text}], max_tokens=2) == 200
    request = urllib.request.Request(f"http://127.0.0.1:{instance.control_port}/metrics")
    with urllib.request.urlopen(request, timeout=10) as page:
        found = re.findall(r"^headrace_kv_events_stored_blocks_total{.*} (\S+)$", page.read().decode(), re.MULTILINE)
    return sum(map(float, found)) > 0
