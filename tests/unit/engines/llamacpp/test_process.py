"""How the embedded engine's process fails: by exit code and with a message that names the cause."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engines.llamacpp.config import EXIT_BAD_CONFIG, EXIT_LOAD_FAILED, EXIT_PORT_TAKEN


def run(config: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "headrace.engines.llamacpp.process", "--config", config]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def config_for(folder: Path, port: int) -> str:
    return json.dumps(
        {
            "model_path": str(folder / "model.gguf"),
            "served_model": "m",
            "host": "127.0.0.1",
            "port": port,
            "context_tokens": 256,
            "slots": 1,
            "threads": 1,
            "batch_tokens": 64,
            "slot_dir": str(folder / "slots"),
        }
    )


@pytest.mark.parametrize("config", ["{", "{}", '{"unknown": 1}'])
def test_a_bad_config_is_named(config: str):
    """A process started by hand with the wrong JSON says what is wrong with it."""
    done = run(config)
    assert done.returncode == EXIT_BAD_CONFIG
    assert "--config is not understood" in done.stderr


def test_a_taken_port_is_named_before_the_model_is_loaded(tmp_path: Path):
    """The message names the port; nothing hangs."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run(config_for(tmp_path, port))
    assert done.returncode == EXIT_PORT_TAKEN
    assert f"port {port} on 127.0.0.1 cannot be used" in done.stderr


@pytest.mark.engine
def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path):
    """A damaged file ends the process with its path in the last line."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF but not really")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    done = run(config_for(tmp_path, port))
    assert done.returncode == EXIT_LOAD_FAILED
    assert str(tmp_path / "model.gguf") in done.stderr.splitlines()[-1]
