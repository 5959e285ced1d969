"""llama.cpp's KV cache: exact, against its own logs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.ports import free_port

from headrace.sizing.architecture import UnknownArchitectureError
from headrace.sizing.gguf_file import read_gguf, read_gguf_header
from headrace.sizing.hf_config import read_hf_config
from headrace.sizing.llamacpp import kv_bytes_per_token, kv_cache_bytes

MIB = 2**20
LOGGED = re.compile(r"KV buffer size =\s*([\d.]+) MiB")
CELLS = re.compile(r"\(\s*(\d+) cells,\s*(\d+) layers,\s*(\d+)/")

GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 36,
    "vocab_size": 201_088,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "torch_dtype": "bfloat16",
}


TALKATIVE = """
import os, sys, xllamacpp
from headrace.engines.llamacpp.config import ProcessConfig
from headrace.engines.llamacpp.process import parameters_of
config = ProcessConfig(model_path=sys.argv[1], served_model="m", host="127.0.0.1", port=int(sys.argv[2]),
    context_tokens=int(sys.argv[3]), slots=int(sys.argv[4]), threads=1, batch_tokens=128, slot_dir=sys.argv[5])
params = parameters_of(xllamacpp, config)
params.verbosity = 5
server = xllamacpp.Server(params)
sys.stderr.flush()
os._exit(0)
"""
"""The embedded engine as headrace starts it, but saying what it allocates; it ends once the model is loaded."""


@pytest.mark.engine
@pytest.mark.parametrize(("context_tokens", "sequences"), [(2048, 4), (300, 2)])
def test_the_embedded_engine_takes_exactly_what_was_computed(
    bundled_model: Path, tmp_path: Path, context_tokens: int, sequences: int
) -> None:
    """KV bytes a token, padded cells and the whole buffer are what llama.cpp itself says at its start."""
    words = [str(bundled_model), str(free_port()), str(context_tokens), str(sequences), str(tmp_path)]
    ran = subprocess.run([sys.executable, "-c", TALKATIVE, *words], capture_output=True, text=True, timeout=90)
    log = ran.stdout + ran.stderr
    cells, layers, engine_sequences = (int(number) for number in CELLS.findall(log)[0])
    logged_bytes = sum(float(size) for size in LOGGED.findall(log)) * MIB
    architecture = read_gguf(bundled_model)
    assert (layers, engine_sequences) == (architecture.layers, sequences)
    assert kv_bytes_per_token(architecture) == logged_bytes / (cells * sequences)
    computed = kv_cache_bytes(architecture, context_tokens=context_tokens, sequences=sequences, step_tokens=128)
    assert computed == logged_bytes


def test_windows_are_as_llama_cpp_logged_them() -> None:
    """gpt-oss-120b with two sequences of 131,072: 9,216 MiB for full layers and 90 MiB for windows.

    Source: the log in ollama/ollama#16480 (--ubatch-size 1024).
    """
    architecture = read_hf_config(GPT_OSS_120B)
    size = kv_cache_bytes(architecture, context_tokens=131_072, sequences=2, step_tokens=1024)
    assert size == (9216 + 90) * MIB


def test_quantized_caches_take_ggml_blocks() -> None:
    """q8_0 stores 32 values in 34 bytes."""
    architecture = read_hf_config(GPT_OSS_120B)
    assert kv_bytes_per_token(architecture, kv_dtype="q8_0") == kv_bytes_per_token(architecture) * 34 / 64


def test_a_gguf_file_tells_its_shape(bundled_model: Path) -> None:
    """Layers, heads and the exact size of the tensors are read from the header."""
    architecture = read_gguf(bundled_model)
    assert (architecture.family, architecture.layers, architecture.hidden) == ("llama", 30, 576)
    assert (architecture.heads, architecture.kv_heads, architecture.context_tokens) == (9, 3, 8192)
    header = read_gguf_header(bundled_model)
    assert header.parameters == 134_515_008
    assert 0 < bundled_model.stat().st_size - header.tensor_bytes < 4 * MIB


@pytest.mark.parametrize("text", [b"", b"GGUF", b"not a model at all, but long enough to look at"])
def test_another_file_is_refused(tmp_path: Path, text: bytes) -> None:
    """What is no GGUF file is said to be none."""
    (tmp_path / "model.gguf").write_bytes(text)
    with pytest.raises(UnknownArchitectureError):
        read_gguf(tmp_path / "model.gguf")
