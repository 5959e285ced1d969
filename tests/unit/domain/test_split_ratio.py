"""How many of how many engines should prefill."""

import pytest

from headrace.domain.split_ratio import MeasuredLoad, best_ratio, ratio_of


def load(prefill: float, output: float, whole: float = 0.0) -> MeasuredLoad:
    return MeasuredLoad(
        prefill_tokens_per_s=prefill,
        whole_prefill_tokens_per_s=whole,
        output_tokens_per_s=output,
        prefill_rate_tokens_per_s=10_000,
        decode_rate_tokens_per_s=1_000,
    )


@pytest.mark.parametrize(
    ("prefill", "output", "counts"),
    [(30_000, 1_000, (6, 2)), (10_000, 3_000, (2, 6)), (10_000, 0, (7, 1)), (0, 1_000, (1, 7))],
)
def test_engines_follow_the_work(prefill: float, output: float, counts: tuple[int, int]) -> None:
    """Three times the prefill work asks for three times the engines; each side keeps one."""
    found = best_ratio(load(prefill, output), 8)
    assert found is not None
    assert counts == (found.prefill, found.decode)


def test_the_busier_side_is_told() -> None:
    """How full it would be shows whether the engines suffice."""
    found = best_ratio(load(30_000, 1_000), 4)
    assert found is not None
    assert found.utilization_ratio == pytest.approx(1.0)


def test_prompts_that_stay_whole_are_work_of_those_who_answer() -> None:
    """What is not handed over asks for decode engines, not for prefill engines."""
    found = best_ratio(load(10_000, 1_000, whole=20_000), 4)
    assert found is not None
    assert (found.prefill, found.decode, found.prefill_busy, found.decode_busy) == (1, 3, 1.0, 3.0)


def test_one_engine_and_no_load_have_no_ratio() -> None:
    """There is nothing to divide."""
    assert best_ratio(load(1, 1), 1) is None
    assert best_ratio(load(0, 0), 8) is None
    assert ratio_of(load(1, 1), 2, 0) is None
