"""Where a model's bytes lie, and how much KV that leaves."""

import pytest

from headrace.catalog.gpus import find_gpu
from headrace.catalog.model_configs import find_model_config
from headrace.simulation.layout import Layout, Placement


def place(
    gpu: str = "h100", model: str = "qwen2.5-32b", *, weights: str = "bf16", kv: str = "bf16", **layout
) -> Placement:
    return Placement(
        gpu=find_gpu(gpu), config=find_model_config(model), layout=Layout(**layout), weights=weights, kv=kv
    )


def test_weights_in_16_bits_take_two_bytes_a_parameter() -> None:
    """Qwen2.5-32B takes 65.5 GB, on one GPU or on four together."""
    assert place().weight_bytes_per_gpu == pytest.approx(2 * 32.76e9, rel=0.001)
    assert place(tensor=4).weight_bytes_per_gpu == pytest.approx(2 * 32.76e9 / 4, rel=0.001)
    assert place(tensor=2, pipeline=2).weight_bytes_per_gpu == pytest.approx(2 * 32.76e9 / 4, rel=0.001)


def test_four_bit_weights_keep_embedding_and_head_in_16_bits() -> None:
    """An AWQ checkpoint of Qwen2.5-32B has 19.3 GB on the Hub, not a quarter of 65."""
    assert place(weights="awq-int4").weight_bytes_per_gpu == pytest.approx(19.3e9, rel=0.03)


def test_kv_is_split_by_heads_as_far_as_there_are_heads() -> None:
    """Eight KV heads fill eight GPUs; sixteen hold copies. Latent attention is copied to all, or split by request."""
    one = place(tensor=1).kv_bytes_per_token_per_gpu

    assert one == 2 * 131_072
    assert place(tensor=8).kv_bytes_per_token_per_gpu == one / 8
    assert place(tensor=16).kv_bytes_per_token_per_gpu == one / 8
    assert place("h200", "deepseek-v3", weights="fp8", tensor=8).kv_split == 1
    assert place("h200", "deepseek-v3", weights="fp8", tensor=8, is_attention_replicated=True).kv_split == 8


def test_kv_in_eight_bits_takes_half() -> None:
    """FP8 KV doubles what fits."""
    wide = place(tensor=4).kv_blocks(memory_ratio=0.9, block_tokens=16)
    narrow = place(tensor=4, kv="fp8").kv_blocks(memory_ratio=0.9, block_tokens=16)

    assert narrow == pytest.approx(2 * wide, rel=0.001)


def test_kv_blocks_of_a_known_layout() -> None:
    """Qwen2.5-32B on four H100 at 0.85: about 833,000 tokens of KV."""
    blocks = place(tensor=4).kv_blocks(memory_ratio=0.85, block_tokens=16)

    assert 16 * blocks == pytest.approx(833_000, rel=0.05)


def test_a_model_that_does_not_fit_is_refused_with_the_numbers() -> None:
    """Seventy billion parameters on one 80 GB card: the message says what is needed and what there is."""
    with pytest.raises(ValueError, match=r"131\.4 GiB on each of 1 x h100-sxm-80gb, of which 90% are 71\.7 GiB"):
        place("h100", "llama-3.3-70b").kv_blocks(memory_ratio=0.9, block_tokens=16)


def test_precisions_are_checked() -> None:
    """A precision that nobody knows is refused by name."""
    with pytest.raises(ValueError, match="fp7"):
        place(weights="fp7")


@pytest.mark.parametrize(
    ("gpu", "weights", "computed"),
    [("h100", "fp8", "fp8"), ("a100", "fp8", "bf16"), ("h100", "awq-int4", "bf16"), ("b200", "nvfp4", "nvfp4")],
)
def test_arithmetic_is_done_in_what_the_gpu_has(gpu: str, weights: str, computed: str) -> None:
    """FP8 weights on an A100 save memory, not arithmetic."""
    assert place(gpu, weights=weights).compute_precision == computed
