"""Step times from first principles: bounds that any engine obeys, and how they move with layout and precision."""

import pytest
from tests.unit.simulation.test_layout import place

from headrace.simulation.roofline import Efficiency, RooflineClock

PERFECT = Efficiency(
    compute_ratio=1.0,
    attention_ratio=1.0,
    memory_ratio=1.0,
    link_ratio=1.0,
    link_latency_s=0.0,
    bus_latency_s=0.0,
    step_overhead_s=0.0,
    sequence_overhead_s=0.0,
)


def prefill(clock: RooflineClock, tokens: int) -> float:
    return clock.step_s(tokens, tokens * (tokens + 1) // 2, tokens, 0, 0, 0)


def decode(clock: RooflineClock, sequences: int, context: int = 1) -> float:
    return clock.step_s(0, 0, 0, sequences, sequences, sequences * context)


def test_generating_for_one_reads_all_weights_once() -> None:
    """Llama 3.1 8B on a perfect H100: 15 GB (without the input embedding) at 3.35 TB/s are 4.5 ms."""
    assert decode(RooflineClock(place(model="llama-3.1-8b"), PERFECT), 1) == pytest.approx(15.01e9 / 3.35e12, rel=0.01)


def test_generating_for_many_costs_little_more_than_for_one() -> None:
    """Below the ridge a larger batch is nearly free; that is why engines batch."""
    clock = RooflineClock(place(model="llama-3.1-8b"))

    assert decode(clock, 64) < 1.2 * decode(clock, 1)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    """Two operations a parameter and token at 989 TFLOP/s, attention on top."""
    clock = RooflineClock(place(model="llama-3.1-8b"), PERFECT)
    products_s = 2 * 6.98e9 * 4096 / 989.4e12
    attention_s = 4 * 32 * 128 * 32 * 4096 * 4097 / 2 / 989.4e12

    assert prefill(clock, 4096) == pytest.approx(products_s + attention_s, rel=0.01)


def test_attention_grows_with_the_square_of_the_prompt() -> None:
    """Doubling a long prompt more than doubles its time."""
    clock = RooflineClock(place(model="llama-3.1-8b"), PERFECT)

    assert prefill(clock, 65_536) > 2.3 * prefill(clock, 32_768)


def test_context_slows_generation_down() -> None:
    """64 sequences of 8,000 tokens read 512,000 tokens of KV each step: 67 GB for Llama 3.1 8B."""
    clock = RooflineClock(place(model="llama-3.1-8b"), PERFECT)

    assert decode(clock, 64, 8000) - decode(clock, 64, 1) == pytest.approx(64 * 8000 * 131_072 / 3.35e12, rel=0.01)


def test_more_gpus_are_faster_but_not_in_proportion() -> None:
    """Tensor parallelism divides the reading and adds all-reduces."""
    one, four = (RooflineClock(place(model="llama-3.1-8b", tensor=tensor)) for tensor in (1, 4))

    assert decode(one, 1) / 4 < decode(four, 1) < decode(one, 1)


def test_links_matter() -> None:
    """The same split over PCIe costs more than over NVLink, most of all for prompts; an H800 lies between."""
    times = [prefill(RooflineClock(place(gpu, tensor=4)), 8192) for gpu in ("h100", "h800", "h100-pcie")]

    assert times == sorted(times)


def test_pipeline_stages_do_not_shorten_a_single_token() -> None:
    """One token passes through all stages, one after the other; a prompt is worked on by all at once."""
    one = RooflineClock(place(model="llama-3.1-8b"), PERFECT)
    two = RooflineClock(place(model="llama-3.1-8b", pipeline=2), PERFECT)

    assert decode(two, 1) == pytest.approx(decode(one, 1), rel=0.01)
    assert prefill(two, 8192) == pytest.approx(prefill(one, 8192) / 2, rel=0.02)


def test_a_mixture_reads_the_experts_that_the_batch_chose() -> None:
    """One token reads 8 of 128 experts, a large batch nearly all."""
    clock = RooflineClock(place(model="qwen3-30b-a3b"), PERFECT)

    assert decode(clock, 1) == pytest.approx(2 * 3.05e9 / 3.35e12, rel=0.05)
    assert decode(clock, 256) > 0.9 * 2 * 30.2e9 / 3.35e12


def test_fewer_bits_are_faster() -> None:
    """FP8 halves both reading and arithmetic on a Hopper, only reading on an Ampere."""
    hopper, hopper_fp8 = (RooflineClock(place(weights=weights), PERFECT) for weights in ("bf16", "fp8"))
    ampere, ampere_fp8 = (RooflineClock(place("a100", weights=weights), PERFECT) for weights in ("bf16", "fp8"))

    assert decode(hopper_fp8, 1) == pytest.approx(decode(hopper, 1) / 2, rel=0.05)
    assert prefill(hopper_fp8, 2048) < 0.6 * prefill(hopper, 2048)
    assert decode(ampere_fp8, 1) == pytest.approx(decode(ampere, 1) / 2, rel=0.05)
    assert prefill(ampere_fp8, 2048) == pytest.approx(prefill(ampere, 2048), rel=0.01)


def test_windows_bound_what_is_read() -> None:
    """Gemma 3 reads little more KV at 64,000 tokens than its ten full layers hold."""
    clock = RooflineClock(place(model="gemma-3-27b"), PERFECT)
    layer_s = 2 * 16 * 128 * 2 / 3.35e12
    read_s = decode(clock, 1, 64_000) - decode(clock, 1, 1)

    assert read_s == pytest.approx((10 * 64_000 + 52 * 1024) * layer_s, rel=0.01)


def test_latent_attention_reads_little_and_computes_more() -> None:
    """DeepSeek-V3 on eight H200: 70 KB of KV a token, on every GPU unless requests are split among them."""
    copied = RooflineClock(place("h200", "deepseek-v3", weights="fp8", tensor=8), PERFECT)
    split = RooflineClock(place("h200", "deepseek-v3", weights="fp8", tensor=8, is_attention_replicated=True), PERFECT)

    def context_s(clock: RooflineClock) -> float:
        return decode(clock, 128, 4000) - decode(clock, 128, 1)

    assert context_s(copied) == pytest.approx(128 * 3999 * 70_272 / 4.8e12, rel=0.05)
    assert context_s(split) < context_s(copied) / 3


@pytest.mark.parametrize("sequences", [1, 8, 64, 256])
def test_the_default_efficiency_is_never_better_than_the_sheet(sequences: int) -> None:
    """What is assumed of engines stays below what the hardware can do."""
    for model, tensor in (("llama-3.1-8b", 1), ("qwen2.5-32b", 4), ("qwen3-30b-a3b", 2)):
        placed = place(model=model, tensor=tensor)
        assert decode(RooflineClock(placed), sequences, 1000) > decode(RooflineClock(placed, PERFECT), sequences, 1000)


def test_published_single_streams_are_met_within_ten_percent() -> None:
    """Llama 3.1 8B in BF16 on vLLM: 75 tokens/s on an A100 40 GB, 6.48 ms a token on an H100 (docs/simulation.md)."""
    a100 = decode(RooflineClock(place("a100-40gb", "llama-3.1-8b")), 1, 1088)
    h100 = decode(RooflineClock(place("h100", "llama-3.1-8b")), 1, 200)

    assert a100 == pytest.approx(1 / 75, rel=0.10)
    assert h100 == pytest.approx(6.48e-3, rel=0.10)
