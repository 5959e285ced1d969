"""How many of how many engines should prefill."""

import pytest

from headrace.gateway.routing.disaggregation.core.advice import MeasuredLoad, advise


def load(prefill: float, output: float, gain_s: float | None = None) -> MeasuredLoad:
    return MeasuredLoad(
        prefill_tokens_per_s=prefill,
        output_tokens_per_s=output,
        prefill_rate_tokens_per_s=10_000,
        decode_rate_tokens_per_s=1_000,
        mean_gain_s=gain_s,
    )


@pytest.mark.parametrize(
    ("prefill", "output", "counts"),
    [(30_000, 1_000, (6, 2)), (10_000, 3_000, (2, 6)), (10_000, 0, (7, 1)), (0, 1_000, (1, 7))],
)
def test_engines_follow_the_work(prefill: float, output: float, counts: tuple[int, int]) -> None:
    """Three times the prefill work asks for three times the engines; each side keeps one."""
    found = advise(load(prefill, output), 8)
    assert found is not None
    assert counts == (found.prefill, found.decode)


def test_the_busier_side_is_told() -> None:
    """How full it would be shows whether the engines suffice."""
    found = advise(load(30_000, 1_000), 4)
    assert found is not None
    assert found.utilization_ratio == pytest.approx(1.0)


@pytest.mark.parametrize(("gain_s", "pays"), [(0.2, True), (-0.1, False), (None, None)])
def test_whether_it_pays_is_the_mean_gain(gain_s: float | None, pays: bool | None) -> None:
    """Without a prediction nothing is said."""
    found = advise(load(1, 1, gain_s), 2)
    assert found is not None
    assert found.pays is pays


def test_one_engine_and_no_load_have_no_ratio() -> None:
    """There is nothing to divide."""
    assert advise(load(1, 1), 1) is None
    assert advise(load(0, 0), 8) is None
