"""Which engines can take one another's KV."""

from dataclasses import replace

import pytest

from headrace.declaration.handover_plan import HandoverPlan
from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import TensorRule
from headrace.engines.kv_shape import KvShape, declared_shape, find_mismatch

SHAPE = KvShape(
    engine=EngineKind.VLLM, version="0.33.0", model="m", revision="r", kv_dtype="bf16", block_tokens=16, layout="HND"
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"engine": EngineKind.SGLANG}, "engine is vllm at prefill and sglang at decode"),
        ({"version": "0.32.0"}, "version is 0.33.0 at prefill and 0.32.0 at decode"),
        ({"model": "n"}, "model is"),
        ({"revision": "s"}, "revision is"),
        ({"kv_dtype": "fp8_e4m3"}, "kv_dtype is bf16 at prefill and fp8_e4m3 at decode"),
        ({"block_tokens": 32}, "block_tokens is 16"),
        ({"layout": "NHD"}, "layout is HND"),
        ({"pipeline": 2}, "pipeline is 1"),
        ({"tensor": 2}, "needs them equal"),
    ],
)
def test_a_mismatch_is_named(change: dict[str, object], words: str) -> None:
    """What differs, and how, is said; equal shapes fit."""
    found = find_mismatch(SHAPE, replace(SHAPE, **change), TensorRule.EQUAL)
    assert found is not None
    assert words in found
    assert find_mismatch(SHAPE, SHAPE, TensorRule.EQUAL) is None


def test_what_is_not_known_speaks_against_nothing() -> None:
    """An attached engine that does not tell its layout is believed to fit."""
    unknown = KvShape(engine=EngineKind.VLLM)
    assert find_mismatch(SHAPE, unknown, TensorRule.EQUAL) is None


@pytest.mark.parametrize(("prefill", "decode", "fits"), [(1, 4, True), (8, 2, True), (2, 3, False)])
def test_tensor_sizes_divide_where_the_engine_allows_it(prefill: int, decode: int, fits: bool) -> None:
    """vLLM pairs different sizes, as long as one divides the other."""
    left, right = replace(SHAPE, tensor=prefill), replace(SHAPE, tensor=decode)
    assert fits is (find_mismatch(left, right, TensorRule.ONE_DIVIDES_OTHER) is None)


def test_what_a_pool_declares_makes_its_shape() -> None:
    """Pools of one model with another KV number format or other devices do not fit."""
    plan = HandoverPlan(role="prefill", kv_dtype="fp8_e4m3", tensor=2)
    shape = declared_shape(plan, EngineKind.VLLM, "m")
    assert (shape.model, shape.kv_dtype, shape.tensor, shape.version) == ("m", "fp8_e4m3", 2, None)
