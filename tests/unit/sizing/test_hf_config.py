"""config.json files: what is read, and what is refused instead of guessed."""

import pytest

from headrace.sizing.architecture import LayerKind, UnknownArchitectureError
from headrace.sizing.hf_config import read_hf_config

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 6,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}


def test_layers_are_counted_by_kind() -> None:
    """Listed layer types, a pattern of windows, and a window that is switched off."""
    listed = read_hf_config(SMALL | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 3})
    assert (listed.cache_layers(LayerKind.WINDOW), listed.cache_layers(LayerKind.FULL)) == (3, 3)
    gemma = read_hf_config(SMALL | {"model_type": "gemma3_text", "sliding_window": 8})
    assert (gemma.cache_layers(LayerKind.WINDOW), gemma.cache_layers(LayerKind.FULL)) == (5, 1)
    off = read_hf_config(SMALL | {"sliding_window": 8, "use_sliding_window": False})
    assert off.cache_layers(LayerKind.FULL) == 6
    mistral = read_hf_config(SMALL | {"model_type": "mistral", "sliding_window": 8})
    assert mistral.cache_layers(LayerKind.WINDOW) == 6


def test_an_unknown_family_is_counted_like_llama_and_says_so() -> None:
    """A new model is sized by its numbers, with the assumption named."""
    new = read_hf_config(SMALL | {"model_type": "brandnew"})
    assert new.is_assumed
    assert new.parameters == read_hf_config(SMALL).parameters


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size"),
        ({"ssm_state_size": 16}, "ssm_state_size"),
        ({"layer_types": ["mystery"] * 6}, "mystery"),
        ({"torch_dtype": "int3"}, "int3"),
        ({"quantization_config": {"quant_method": "magic"}}, "magic"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
    ],
)
def test_what_cannot_be_sized_is_refused_by_name(change: dict[str, object], named: str) -> None:
    """Sizing says which value it does not know, rather than guess."""
    with pytest.raises(UnknownArchitectureError, match=named):
        read_hf_config(SMALL | change)


@pytest.mark.parametrize(
    ("said", "name", "size"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq-int4", 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 16384),
        ({"quant_method": "mxfp4"}, "mxfp4", 0.5 + 1 / 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 0.5625),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 0.5625),
    ],
)
def test_quantization_is_read_with_its_scales(said: dict[str, object], name: str, size: float) -> None:
    """Bytes a weight include group scales and zero points."""
    weights = read_hf_config(SMALL | {"quantization_config": said}).weights
    assert (weights.name, weights.matrix_bytes) == (name, pytest.approx(size))
