"""What requests cost."""

import pytest

from headrace.declaration.tenancy_plan import PricePlan
from headrace.gateway.admission.core.pricing import Tariff

TARIFF = Tariff(
    PricePlan(
        model="m",
        input_nanos_per_million=2_000_000_000,
        cached_input_nanos_per_million=500_000_000,
        output_nanos_per_million=8_000_000_000,
        gpu_hour_nanos=3_600_000_000,
    ),
    "v7",
)


@pytest.mark.parametrize(
    ("input_tokens", "cached", "output_tokens", "gpu_s", "nanos"),
    [
        (0, 0, 0, None, 0),
        (1, 0, 0, None, 2000),
        (1000, 400, 0, None, 600 * 2000 + 400 * 500),
        (0, 0, 1000, None, 1000 * 8000),
        (0, 0, 0, 2.5, 2_500_000),
        (1000, 0, 1000, 1.0, 10_000_000 + 1_000_000),
    ],
)
def test_every_part_has_its_price(
    input_tokens: int, cached: int, output_tokens: int, gpu_s: float | None, nanos: int
) -> None:
    """Input, what was cached of it, output, and time of GPUs; small requests are not rounded away."""
    assert TARIFF.cost_nanos(input_tokens, cached, output_tokens, gpu_s) == nanos


def test_an_engine_that_counts_more_cached_than_input_is_not_believed() -> None:
    """A cost is never below what its input costs from the cache."""
    assert TARIFF.cost_nanos(10, 50, 0, None) == 10 * 500


def test_a_cost_stays_a_number_that_a_ledger_holds() -> None:
    """However absurd the price and the count: a record is not lost for it."""
    price = PricePlan(
        model="m",
        input_nanos_per_million=10**18,
        cached_input_nanos_per_million=10**18,
        output_nanos_per_million=10**18,
        gpu_hour_nanos=0,
    )
    assert Tariff(price, None).cost_nanos(0, 0, 2**31, None) == 2**53 - 1
