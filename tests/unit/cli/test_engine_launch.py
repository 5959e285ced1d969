"""`headrace engine launch`: the command of each pool, without starting anything."""

import json
from pathlib import Path

import pytest

TEXT = """\
version: 1
models: {m: {source: "hf:org/name@0123456789012345678901234567890123456789"}}
pools:
  main:
    model: m
    engine: vllm
    runtime: {env: {HF_TOKEN: "${env:MY_TOKEN}", LEVEL: "1"}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MY_TOKEN", "secret-text")
    path = tmp_path / "headrace.yaml"
    path.write_text(TEXT)
    return str(path)


def test_one_flag_a_line_ready_for_a_shell(run, config: str) -> None:
    """Variables, command and flags, each flag with its value on a line of its own."""
    ran = run("engine", "launch", "--config", config, "--set", "pools.main.port=30000")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert "  --port 30000 \\" in lines
    assert "LEVEL=1 \\" in lines
    assert not lines[-1].endswith("\\")
    assert "secret-text" not in ran.out


def test_json_has_the_words_as_they_are(run, config: str) -> None:
    """Programs get the argument list, not a shell's line."""
    ran = run("engine", "launch", "--config", config, "--json", "--set", "pools.main.engine=tensorrt-llm")
    document = json.loads(ran.out)
    assert document["schema"] == "headrace/engine-launch/v1"
    [launch] = document["data"]
    assert launch["argv"][:2] == ["trtllm-serve", "serve"]
    assert launch["port_is_chosen"] is True
    assert any("guided_decoding_backend" in text for text in launch["files"].values())


def test_what_the_engine_lacks_is_said_instead(run, config: str) -> None:
    """With the line and the engines that have it; nothing is shown that would not be started."""
    ran = run("engine", "launch", "--config", config, "--set", "pools.main.memory.kv_dtype=q8_0")
    assert ran.code == 1
    assert "pools.main.memory.kv_dtype" in ran.err


def test_check_judges_overrides_as_well(run, config: str) -> None:
    """`headrace check --set` answers for the declaration as it would be."""
    assert run("check", "--config", config, "--elsewhere").code == 0
    ran = run("check", "--config", config, "--set", "pools.main.engine=llamacpp")
    assert ran.code == 3
    assert "reads one GGUF file" in ran.out
