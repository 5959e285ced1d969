"""What `headrace budget` shows."""

import pytest

from headrace.cli.budget import money_text


@pytest.mark.parametrize(
    ("amount", "decimals", "text"),
    [
        (20.0, 2, "20.00"),
        (1234.5, 2, "1,234.50"),
        (0.001, 2, "0.001"),
        (0.0, 2, "0.00"),
        (0.00001234, 4, "0.0000123"),
        (16.00004, 4, "16.0000"),
        (0.0001, 4, "0.0001"),
        (1e-12, 2, "0.000000000"),
        (-0.001, 2, "-0.001"),
    ],
)
def test_a_small_amount_does_not_read_as_nothing(amount: float, decimals: int, text: str) -> None:
    """A budget of a tenth of a cent is shown as one."""
    assert money_text(amount, decimals) == text
