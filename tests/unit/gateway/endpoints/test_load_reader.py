"""What two readings of an engine's prefix cache say of the prompts between them."""

import pytest

from headrace.engines.load import EngineLoad
from headrace.engines.metrics import Purpose
from headrace.gateway.endpoints.load_reader import miss_ratio


def page(queries: float | None, hits: float | None) -> EngineLoad:
    found = {Purpose.PREFIX_QUERIES: queries, Purpose.PREFIX_HITS: hits}
    values = {purpose: value for purpose, value in found.items() if value is not None}
    return EngineLoad(values=values, histograms={}, parts={}, facts={}, names={})


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ((0, 0), (100, 0), 1.0),
        ((0, 0), (100, 100), 0.0),
        ((100, 90), (200, 115), 0.75),
        ((100, 90), (100, 90), 0.5),  # nothing was looked up: what was known stays
        ((100, 90), (10, 2), 0.5),  # the engine was restarted
        ((100, None), (200, None), 0.5),
        ((None, None), (None, None), 0.5),
    ],
)
def test_the_share_of_computed_tokens(
    before: tuple[float | None, float | None], after: tuple[float | None, float | None], ratio: float
) -> None:
    """Of the prompt tokens looked up between two readings, what was not found was computed."""
    assert miss_ratio(page(*after), page(*before), 0.5) == pytest.approx(ratio)


def test_a_first_reading_says_nothing() -> None:
    """One page alone has only totals over the engine's life."""
    assert miss_ratio(page(100, 90), None, 1.0) == 1.0
