"""How a replica of llama.cpp is started: natively where llama-server is on PATH, else through xllamacpp."""

import json
import os
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from headrace.declaration.engine_options import Batching, EngineOptions
from headrace.engines.contract import EngineUnavailableError, ReplicaSpec
from headrace.engines.llamacpp import launch as launch_module
from headrace.engines.llamacpp.driver import LlamacppDriver
from headrace.engines.llamacpp.launch import process_config

FLAGS = Path(__file__).parents[3] / "captures" / "llamacpp" / "llama_server_flags.txt"


@pytest.fixture
def spec(tmp_path: Path) -> ReplicaSpec:
    return ReplicaSpec(
        pool="chat",
        replica=1,
        served_model="small",
        model_path=tmp_path / "model",
        host="127.0.0.1",
        port=4321,
        context_tokens=1024,
        threads=2,
        embeddings=False,
        slot_dir=tmp_path / "slots",
        file_dir=tmp_path / "files",
        stop_s=20,
        options=EngineOptions(batching=Batching(max_sequences=3, batched_tokens=256)),
        chat_template="{{ messages }}",
    )


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something executable called llama-server on PATH; it is never run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin")
    return program


@pytest.fixture
def no_native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def value_after(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_a_native_server_is_preferred_with_the_declared_settings(spec: ReplicaSpec, native: Path):
    """llama-server from PATH gets the whole context of all slots, the threads, the batch size and the template."""
    launch = LlamacppDriver().launch(spec)
    assert launch.argv[0] == str(native)
    assert value_after(launch.argv, "--ctx-size") == "3072"
    assert value_after(launch.argv, "--parallel") == "3"
    assert value_after(launch.argv, "--threads") == value_after(launch.argv, "--threads-batch") == "2"
    assert value_after(launch.argv, "--ubatch-size") == "256"
    assert value_after(launch.argv, "--chat-template") == "{{ messages }}"
    assert str(native) in launch.description


def test_every_flag_is_one_that_llama_server_has(spec: ReplicaSpec, native: Path):
    """The flags are among those in a real llama-server's --help (recorded: tests/captures/llamacpp)."""
    known = set(FLAGS.read_text().split())
    for variant in (spec, replace(spec, embeddings=True, chat_template=None)):
        flags = {argument for argument in LlamacppDriver().launch(variant).argv if argument.startswith("--")}
        assert flags <= known


def test_extra_arguments_come_last_so_that_they_win(spec: ReplicaSpec, native: Path):
    """An operator's own arguments follow ours."""
    options = spec.options.model_copy(update={"extra_args": ("--numa", "isolate")})
    launch = LlamacppDriver().launch(replace(spec, options=options))
    assert launch.argv[-2:] == ("--numa", "isolate")


def test_without_a_native_server_xllamacpp_runs_in_a_process_of_its_own(spec: ReplicaSpec, no_native: None):
    """The command is this Python with our process module and one JSON object."""
    launch = LlamacppDriver().launch(spec)
    assert launch.argv[:4] == (sys.executable, "-m", "headrace.engines.llamacpp.process", "--config")
    config = json.loads(launch.argv[4])
    assert (config["context_tokens"], config["slots"], config["threads"]) == (1024, 3, 2)
    assert "xllamacpp" in launch.description


def test_extra_arguments_without_a_native_server_are_refused(spec: ReplicaSpec, no_native: None):
    """They are never dropped in silence."""
    options = spec.options.model_copy(update={"extra_args": ("--mlock",)})
    with pytest.raises(EngineUnavailableError, match="extra_args"):
        LlamacppDriver().launch(replace(spec, options=options))


def test_without_any_llama_cpp_the_error_says_how_to_get_it(
    spec: ReplicaSpec, no_native: None, monkeypatch: pytest.MonkeyPatch
):
    """Neither a program nor the package: the message names both."""

    def find_nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(launch_module, "find_spec", find_nothing)
    with pytest.raises(EngineUnavailableError, match="llama-server on PATH nor the Python package xllamacpp"):
        LlamacppDriver().launch(spec)


def test_the_batch_is_never_larger_than_the_context(spec: ReplicaSpec):
    """A small context bounds the batch; embeddings need the whole input in one step."""
    assert process_config(replace(spec, context_tokens=128)).batch_tokens == 128
    assert process_config(replace(spec, embeddings=True)).batch_tokens == 1024
