"""Which engines go together."""

from dataclasses import replace

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import TensorRule
from headrace.gateway.routing.disaggregation.core.pairing import Half, KvShape, Pair, choose_pair, find_mismatch

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


def half(name: str, cost_s: float, *, has_room: bool = True, shape: KvShape = SHAPE) -> Half:
    return Half(name=name, shape=shape, cost_s=cost_s, has_room=has_room)


def test_the_cheapest_pair_counts_the_way_between_them() -> None:
    """A near prefill engine with a longer queue wins against a far one."""
    ways_s = {("near", "d"): 0.1, ("far", "d"): 2.0}
    found = choose_pair(
        [half("far", 0.5), half("near", 1.0)],
        [half("d", 0.2), half("full", 0.0, has_room=False)],
        rule=TensorRule.EQUAL,
        predict_transfer_s=lambda left, right: ways_s[left, right],
    )
    assert found is not None
    assert ((found.prefill, found.decode), found.transfer_s) == (("near", "d"), 0.1)
    assert found.cost_s == pytest.approx(1.3)


def test_engines_that_do_not_fit_are_no_pair() -> None:
    """Another version, itself, or one without room: None."""
    odd = replace(SHAPE, version="0.1")
    decodes = [half("d", 0.0, shape=odd), half("p", 0.0)]
    found = choose_pair([half("p", 0.0)], decodes, rule=TensorRule.EQUAL, predict_transfer_s=lambda _, __: 0.0)
    assert found is None


def test_equal_pairs_are_taken_by_name() -> None:
    """The choice among equals does not depend on their order."""
    halves = [half("b", 1.0), half("a", 1.0)]
    found = choose_pair(halves, halves, rule=TensorRule.EQUAL, predict_transfer_s=lambda _, __: 0.0)
    assert found == Pair(prefill="a", decode="b", transfer_s=0.0, cost_s=2.0)
