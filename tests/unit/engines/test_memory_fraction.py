"""A memory fraction in the meaning of each engine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.declaration.engine_options import Memory
from headrace.engines.memory_fraction import CannotConvertError, convert_fraction

GIB = 2**30
KNOWN: dict[str, Any] = {"device_bytes": 80 * GIB, "working_bytes": 4 * GIB}
WEIGHTS = 64 * GIB


def test_no_fraction_is_none():
    """Without one the engine's own default holds."""
    assert convert_fraction(Memory(), "total", weight_bytes=None, devices=1) is None


@pytest.mark.parametrize("meaning", ["total", "static", "free"])
def test_in_the_engines_own_meaning_it_needs_no_facts(meaning: Any):
    """It is passed on as declared, with nothing to explain."""
    converted = convert_fraction(Memory(fraction=0.85, of=meaning), meaning, weight_bytes=None, devices=1)
    assert converted is not None
    assert (converted.fraction, converted.note) == (0.85, None)


@pytest.mark.parametrize(
    ("of", "fraction", "meaning", "expected"),
    [
        ("total", 0.85, "static", 0.80),  # 68 of 80 GiB, less 4
        ("total", 0.85, "free", 0.8),  # 68 - 4 - 16 = 48 of 60
        ("static", 0.80, "total", 0.85),
        ("static", 0.80, "free", 0.8),
        ("free", 0.80, "static", 0.80),
        ("free", 0.80, "total", 0.85),
    ],
)
def test_each_meaning_into_each_other(of: Any, fraction: float, meaning: Any, expected: float):
    """80 GiB of device, 16 GiB of weights on each of four, 4 GiB to work with: 48 GiB of KV cache in every meaning."""
    memory = Memory(fraction=fraction, of=of, **KNOWN)
    converted = convert_fraction(memory, meaning, weight_bytes=WEIGHTS, devices=4)
    assert converted is not None
    assert converted.fraction == pytest.approx(expected, abs=0.0011)
    assert converted.note is not None
    assert "80.0 GiB" in converted.note


@given(
    fraction=st.floats(0.6, 0.95),
    weights_gib=st.integers(1, 30),
    working_gib=st.integers(0, 8),
    of=st.sampled_from(["total", "static", "free"]),
    meaning=st.sampled_from(["total", "static", "free"]),
)
def test_there_and_back_again(fraction: float, weights_gib: int, working_gib: int, of: Any, meaning: Any):
    """A conversion and its reverse lose no more than the rounding, and never give more memory than declared."""
    memory = Memory(fraction=fraction, of=of, device_bytes=80 * GIB, working_bytes=working_gib * GIB)
    try:
        there = convert_fraction(memory, meaning, weight_bytes=weights_gib * GIB, devices=1)
        assert there is not None
        back_memory = memory.model_copy(update={"fraction": there.fraction, "of": meaning})
        back = convert_fraction(back_memory, of, weight_bytes=weights_gib * GIB, devices=1)
    except CannotConvertError:
        return  # no room in one of the meanings
    assert back is not None
    assert fraction - 0.004 <= back.fraction <= fraction + 1e-9


@pytest.mark.parametrize(
    ("memory", "weight_bytes", "key", "named"),
    [
        ({"working_bytes": GIB}, WEIGHTS, ("memory", "of"), "memory.device_bytes"),
        ({"device_bytes": GIB}, WEIGHTS, ("memory", "of"), "memory.working_bytes"),
        (KNOWN, None, ("memory", "of"), "weight_bytes"),
        (KNOWN, 400 * GIB, ("memory", "fraction"), "no KV cache"),
    ],
)
def test_missing_facts_are_named(memory: dict[str, Any], weight_bytes: int | None, key: tuple[str, str], named: str):
    """What to declare is said; weights that leave no room are refused."""
    with pytest.raises(CannotConvertError) as caught:
        convert_fraction(Memory(fraction=0.85, **memory), "free", weight_bytes=weight_bytes, devices=4)
    assert caught.value.key == key
    assert named in caught.value.message + caught.value.hint
