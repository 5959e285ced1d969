"""The converter from GGUF to a Hugging Face folder, on the bundled model and on small numbers."""

import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.real.model_conversion import as_bf16, convert, in_halves

from headrace.declaration.builtin import BUILTIN_SHA256, BUILTIN_SOURCE
from headrace.fleet.deploy.models import ModelStore
from headrace.settings import load_settings


@pytest.mark.parametrize(
    ("value", "expected_bits"),
    [(1.0, 0x3F80), (-2.5, 0xC020), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (0.0, 0)],
)
def test_numbers_are_rounded_to_the_nearest_and_ties_to_even(value: float, expected_bits: int) -> None:
    """A weight loses the lower half of its bits, rounded and not cut."""
    assert struct.unpack("<H", as_bf16(np.array([value], dtype=np.float32))) == (expected_bits,)


def test_rotary_pairs_become_halves() -> None:
    """llama.cpp keeps the two rows of a rotation side by side; Hugging Face keeps all first ones, then all second."""
    rows = np.array([[0], [2], [1], [3], [10], [12], [11], [13]], dtype=np.float32)
    assert in_halves(rows, heads=2).ravel().tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.slow
def test_the_bundled_model_is_converted_whole(tmp_path: Path) -> None:
    """Every tensor is there under its name with its shape, and a second conversion changes nothing."""
    source = ModelStore(load_settings().cache_dir).ensure_now(BUILTIN_SOURCE, BUILTIN_SHA256)
    folder = tmp_path / "model"
    convert(source, folder, chat_template="{{ messages }}")
    content = (folder / "model.safetensors").read_bytes()
    head_bytes = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + head_bytes])
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    assert len(tensors) == len(gguf.GGUFReader(source).tensors) == 272
    assert tensors["model.layers.0.self_attn.k_proj.weight"]["shape"] == [192, 576]
    assert max(entry["data_offsets"][1] for entry in tensors.values()) == len(content) - 8 - head_bytes
    assert json.loads((folder / "config.json").read_text())["rope_theta"] == 100000.0
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == 49152
    changed_at_ns = (folder / "model.safetensors").stat().st_mtime_ns
    convert(source, folder, chat_template="{{ messages }}")
    assert (folder / "model.safetensors").stat().st_mtime_ns == changed_at_ns
