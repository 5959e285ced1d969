"""Bytes of the KV cache by kind of layer and split over devices."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sizing.architecture import Architecture
from headrace.sizing.hf_config import read_hf_config
from headrace.sizing.kv import heads_on_device, sequence_bytes, token_bytes

PUBLISHED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "captures" / "sizing" / "published_weights.json").read_text()
)


def architecture(model: str) -> Architecture:
    return read_hf_config(next(case["config"] for case in PUBLISHED if case["model"].startswith(model)))


def test_one_token_takes_keys_and_values_of_every_layer() -> None:
    """8 KV heads of 128 in 32 layers are 131,072 bytes in 16 bits and half of it in FP8."""
    llama = architecture("Meta-Llama-3.1-8B")
    assert token_bytes(llama) == 131_072
    assert token_bytes(llama, kv_dtype="fp8_e4m3") == 65_536
    assert token_bytes(llama, pipeline=2) == 65_536


@pytest.mark.parametrize(("tensor", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (3, 3)])
def test_heads_are_copied_where_devices_outnumber_them(tensor: int, heads: int) -> None:
    """More GPUs than KV heads save no further memory."""
    assert heads_on_device(8, tensor) == heads


def test_latent_attention_is_not_split() -> None:
    """MLA keeps one vector of 576 elements a token and layer on each GPU, however many there are."""
    lite = architecture("DeepSeek-V2-Lite")
    assert token_bytes(lite) == token_bytes(lite, tensor=8) == 27 * 576 * 2


def test_windows_stop_growing() -> None:
    """Layers that see 1,024 tokens keep them and one step, not the whole sequence."""
    gemma = architecture("medgemma")
    short, long = (sequence_bytes(gemma, tokens, step_tokens=2048) for tokens in (65_536, 131_072))
    full_layers_bytes = 10 * 2 * 16 * 128 * 2
    assert long - short == 65_536 * full_layers_bytes


def test_linear_attention_costs_each_sequence_the_same() -> None:
    """Three quarters of a hybrid's layers keep a state of fixed size."""
    hybrid = architecture("Qwen3.5-25B")
    states_bytes = sequence_bytes(hybrid, 16) - 16 * token_bytes(hybrid)
    assert states_bytes == 30 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)


def test_a_sequence_takes_whole_blocks() -> None:
    """One token takes a block."""
    llama = architecture("Meta-Llama-3.1-8B")
    assert sequence_bytes(llama, 1) == sequence_bytes(llama, 16) == 16 * token_bytes(llama)
    assert sequence_bytes(llama, 17) == 32 * token_bytes(llama)
