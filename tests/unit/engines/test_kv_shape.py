"""Which engines can take one another's KV."""

from dataclasses import replace

import pytest

from headrace.declaration.handover_plan import HandoverPlan
from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import FitRules, TensorRule
from headrace.engines.kv_shape import KnownShape, KvShape, declared_shape, find_known_mismatch, find_mismatch

SHAPE = KvShape(
    engine=EngineKind.VLLM,
    version="0.33.0",
    model="m",
    revision="r",
    kv_dtype="bf16",
    block_tokens=16,
    layout="HND",
    tensor=1,
    pipeline=1,
)
STRICT = FitRules()
TOLD = KvShape(engine=EngineKind.SGLANG, version="0.5.23", kv_dtype="bfloat16", block_tokens=1, tensor=2, pipeline=1)
DECLARED = KvShape(engine=EngineKind.SGLANG, model="m", kv_dtype="auto", tensor=1, pipeline=1)


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
    found = find_mismatch(SHAPE, replace(SHAPE, **change), STRICT)
    assert found is not None
    assert words in found
    assert find_mismatch(SHAPE, SHAPE, STRICT) is None


def test_what_is_not_known_speaks_against_nothing() -> None:
    """An attached engine that does not tell its layout is believed to fit."""
    unknown = KvShape(engine=EngineKind.VLLM)
    assert find_mismatch(SHAPE, unknown, STRICT) is None


@pytest.mark.parametrize(("prefill", "decode", "fits"), [(1, 4, True), (8, 2, True), (2, 3, False)])
def test_tensor_sizes_divide_where_the_engine_allows_it(prefill: int, decode: int, fits: bool) -> None:
    """vLLM pairs different sizes, as long as one divides the other."""
    left, right = replace(SHAPE, tensor=prefill), replace(SHAPE, tensor=decode)
    assert fits is (find_mismatch(left, right, FitRules(tensor=TensorRule.ONE_DIVIDES_OTHER)) is None)


def test_what_a_pool_declares_makes_its_shape() -> None:
    """Pools of one model with another KV number format or other devices do not fit."""
    plan = HandoverPlan(role="prefill", kv_dtype="fp8_e4m3", tensor=2)
    shape = declared_shape(plan, EngineKind.VLLM, "m")
    assert (shape.model, shape.kv_dtype, shape.tensor, shape.version) == ("m", "fp8_e4m3", 2, None)


@pytest.mark.parametrize(
    ("left", "right", "fits"),
    [
        ("auto", "bfloat16", True),
        ("bf16", "bfloat16", True),
        ("auto", "fp8_e4m3", False),
        ("float16", "bfloat16", False),
        ("fp8_e4m3", "fp8_e5m2", False),
    ],
)
def test_formats_of_numbers_are_compared_by_what_they_may_be(left: str, right: str, fits: bool) -> None:
    """The model's own numbers may be any wide format, and none of 8 bits; two names of one format are one."""
    for one, other in ((left, right), (right, left)):
        found = find_mismatch(replace(SHAPE, kv_dtype=one), replace(SHAPE, kv_dtype=other), STRICT)
        assert fits is (found is None)


def test_an_engine_that_maps_blocks_takes_other_sizes() -> None:
    """Blocks of another size are a mismatch only where the engine needs them equal."""
    other = replace(SHAPE, block_tokens=32)
    assert find_mismatch(SHAPE, other, FitRules(needs_equal_blocks=False)) is None
    assert find_mismatch(SHAPE, other, STRICT) == "block_tokens is 16 at prefill and 32 at decode"


def test_decode_with_one_stage_may_take_from_several() -> None:
    """SGLang joins the stages of prefill at a decode engine that has one, and not the other way round."""
    staged, rules = replace(SHAPE, pipeline=4), FitRules(may_join_stages=True)
    assert find_mismatch(staged, SHAPE, rules) is None
    assert find_mismatch(SHAPE, staged, rules) == "pipeline is 1 at prefill and 4 at decode"


def test_what_engines_say_counts_more_than_what_is_declared() -> None:
    """Two engines that tell the same fit though nobody declared their sizes, and two that tell otherwise do not."""
    one = KnownShape(declared=replace(DECLARED, tensor=4), told=TOLD)
    other = KnownShape(declared=DECLARED, told=TOLD)
    assert find_known_mismatch(one, other, STRICT) is None
    newer = KnownShape(declared=DECLARED, told=replace(TOLD, version="0.5.24"))
    assert find_known_mismatch(one, newer, STRICT) == "version is 0.5.23 at prefill and 0.5.24 at decode"


def test_the_word_of_one_engine_is_not_held_against_the_others_default() -> None:
    """Where only one of two tells a size, both count as declared: what is unknown is no mismatch."""
    told = KnownShape(declared=DECLARED, told=replace(TOLD, kv_dtype="fp8_e4m3", tensor=8))
    for silent in (None, KvShape(engine=EngineKind.SGLANG), KvShape(engine=EngineKind.SGLANG, version="0.5.23")):
        other = KnownShape(declared=DECLARED, told=silent)
        assert find_known_mismatch(told, other, STRICT) is None
        assert find_known_mismatch(other, told, STRICT) is None
        assert other.is_measured is (silent is not None and silent.version is not None)


def test_an_engine_started_with_the_other_role_is_in_the_wrong_pool() -> None:
    """SGLang's halves have their role from their start: a decode engine in the prefill pool is named."""
    wrong = KnownShape(declared=DECLARED, told=replace(TOLD, role="decode"))
    right = KnownShape(declared=DECLARED)
    assert find_known_mismatch(wrong, right, STRICT) == "role is decode at an engine whose pool has the role prefill"
    assert find_known_mismatch(right, wrong, STRICT) is None
