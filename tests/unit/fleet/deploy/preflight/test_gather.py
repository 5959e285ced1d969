"""Facts from this machine, and from the script that a remote machine runs."""

import subprocess
from pathlib import Path

import pytest

from headrace.declaration.builtin import builtin_declaration
from headrace.declaration.model import Declaration, Model
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.preflight.gather import (
    CaptureFolder,
    ask_machine,
    look_at_model,
    plan_pools,
    script_for,
)
from headrace.settings import load_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    return load_settings()


def test_this_machine_answers(settings) -> None:
    """Memory, limits, disk, ports and interfaces are seen on any Linux machine."""
    machine = ask_machine(settings, frozenset())
    assert machine.memory_bytes
    assert machine.open_files
    assert machine.disk is not None
    assert machine.ports is not None
    assert machine.interfaces


def test_the_script_writes_a_capture_that_is_read_alike(settings, tmp_path: Path) -> None:
    """What a remote machine captures says the same as asking it here."""
    script = script_for(builtin_declaration(), settings)
    subprocess.run(["sh"], input=script, text=True, cwd=tmp_path, check=True, timeout=60)
    captured, live = CaptureFolder(tmp_path / "capture").machine(), ask_machine(settings, frozenset())
    assert captured.is_captured
    assert (captured.open_files, captured.interfaces) == (live.open_files, live.interfaces)
    assert captured.disk is not None
    assert live.disk is not None
    assert (captured.disk.path, captured.disk.filesystem) == (live.disk.path, live.disk.filesystem)
    assert len(captured.gpus) == len(live.gpus)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    """The message says how to write one."""
    with pytest.raises(OperatorError, match="no folder"):
        CaptureFolder(tmp_path / "nowhere")


def test_a_model_is_looked_at_where_it_lies(tmp_path: Path) -> None:
    """A folder is listed, one file is hashed where a checksum is declared, and nothing is nothing."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "a.safetensors").write_bytes(b"12345")
    folder = look_at_model("m", str(tmp_path / "model"), Model())
    assert (folder.is_here, folder.weight_bytes) == (True, 5)
    (tmp_path / "model.gguf").write_bytes(b"")
    single = look_at_model("m", str(tmp_path / "model.gguf"), Model(sha256="0" * 64))
    assert single.sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert not look_at_model("m", str(tmp_path / "nothing"), Model()).is_here


def test_each_pool_that_runs_here_is_resolved(settings) -> None:
    """The built-in declaration has one pool, whose model is not fetched yet."""
    (plan,) = plan_pools(builtin_declaration(), settings, look_at_model)
    assert (plan.name, plan.facts.is_here, plan.devices) == ("default", False, 1)


def test_a_known_model_is_planned_before_it_is_fetched(settings) -> None:
    """Its shape and the size of its download come from the catalogue, by its name on the Hub."""
    declaration = Declaration.model_validate(
        {
            "models": {"chat": {"source": f"hf:Qwen/Qwen3-8B@{'a' * 40}"}},
            "pools": {"main": {"model": "chat", "engine": "vllm"}},
        }
    )
    (plan,) = plan_pools(declaration, settings, look_at_model)
    assert (plan.repository, plan.facts.is_here) == ("Qwen/Qwen3-8B", False)
    assert plan.facts.architecture is not None
    assert plan.facts.total_bytes == pytest.approx(16.38e9, rel=0.01)


def test_files_that_cannot_be_followed_are_left_out(tmp_path: Path) -> None:
    """A link to nothing, as a file that vanishes during the walk, does not end the check."""
    (tmp_path / "model.safetensors").write_bytes(b"12345")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    facts = look_at_model("m", str(tmp_path), Model())
    assert (facts.is_here, facts.files) == (True, {"model.safetensors": 5})


def test_a_model_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    """Not an error of the command: what cannot be read is said, and the rest is judged."""
    (tmp_path / "config.json").mkdir()
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    facts = look_at_model("m", str(loop), Model())
    assert (facts.is_here, facts.files) == (False, {})
    assert look_at_model("m", str(tmp_path), Model()).files == {}
