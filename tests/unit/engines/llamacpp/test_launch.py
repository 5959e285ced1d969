"""What a declared option becomes on llama.cpp's command line, native and embedded."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.launch_specs import added_words, lacking, make_spec, recorded_flags

from headrace.engines.contract import EngineUnavailableError
from headrace.engines.llamacpp.driver import LlamacppDriver
from headrace.engines.llamacpp.launch import process_config

DRIVER = LlamacppDriver()
NATIVE = {"runtime": {"command": ["llama-server"]}}

CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"batching": {"max_sequences": 8}}, ["--ctx-size", "32768", "--parallel", "8"]),
    ({"batching": {"batched_tokens": 512}}, ["--batch-size", "512", "--ubatch-size", "512"]),
    ({"memory": {"kv_dtype": "q8_0"}}, ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0"]),
    ({"memory": {"kv_dtype": "fp16"}}, ["--cache-type-k", "f16", "--cache-type-v", "f16"]),
    ({"prefix_cache": {"enabled": False}}, ["--no-cache-prompt"]),
    ({"prefix_cache": {"enabled": True}}, []),
    ({"extra_args": ["--numa", "isolate"]}, ["--numa", "isolate"]),
]


@pytest.fixture(autouse=True)
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something executable called llama-server on PATH; it is never run."""
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(("options", "words"), CASES, ids=lambda value: json.dumps(value)[:60])
def test_an_option_becomes_its_flags(options: dict[str, Any], words: list[str]):
    """Each declared option adds exactly its own flags, and nothing is a problem to llama.cpp."""
    assert added_words(DRIVER, options) == words
    assert lacking(DRIVER, options) == []


def test_every_emitted_flag_is_one_that_llama_server_has():
    """What the driver can put on a command line is in the recorded --help, and is all that it puts."""
    emitted = {flag.flag for flag in DRIVER.emitted_flags}
    assert emitted <= recorded_flags("llamacpp/llama_server_flags.txt")
    for options, _ in CASES[:-1]:
        words = DRIVER.launch(make_spec(options, chat_template="x")).argv
        assert {word for word in words if word.startswith("--")} <= emitted


def test_the_host_tier_is_its_prompt_cache():
    """A declared host tier is the memory for prompts of slots given to others, for both kinds of llama.cpp."""
    spec = make_spec({"kv_offload": {"host_bytes": 2**30}})
    assert DRIVER.launch(spec).env["LLAMA_ARG_CACHE_RAM"] == "1024"
    assert process_config(spec).prompt_cache_mib == 1024
    assert process_config(make_spec()).prompt_cache_mib == 256


def test_a_declared_command_needs_nothing_on_path(monkeypatch: pytest.MonkeyPatch):
    """A build elsewhere is named by runtime.command."""
    monkeypatch.setenv("PATH", "")
    options = {"runtime": {"command": ["/srv/llama-server"], "env": {"CUDA_VISIBLE_DEVICES": "1"}}}
    launch = DRIVER.launch(make_spec(options))
    assert launch.argv[0] == "/srv/llama-server"
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "1"


def test_the_embedded_engine_refuses_what_only_the_native_one_is_told(monkeypatch: pytest.MonkeyPatch):
    """They are never dropped in silence."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineUnavailableError, match=r"memory\.kv_dtype need llama-server"):
        DRIVER.launch(make_spec({"memory": {"kv_dtype": "q8_0"}}))


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"parallel": {"tensor": 2}}, ["parallel.tensor"]),
        ({"memory": {"fraction": 0.5}}, ["memory.fraction"]),
        ({"memory": {"kv_dtype": "fp8_e4m3"}}, ["memory.kv_dtype"]),
        ({"telemetry": {"metrics": False}}, ["telemetry.metrics"]),
        ({"parsers": {"tool": "hermes"}}, ["parsers.tool"]),
        ({"runtime": {"python": "/p"}}, ["runtime.python"]),
        ({"extra_args": ["-c", "1", "--threads=2"]}, ["extra_args.0", "extra_args.2"]),
    ],
)
def test_what_llama_cpp_cannot_do_is_a_problem(options: dict[str, Any], keys: list[str]):
    """It is named by its key, and never dropped."""
    assert lacking(DRIVER, options) == keys
