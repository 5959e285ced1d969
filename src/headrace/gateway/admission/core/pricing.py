"""What a request costs by the price table, in billionths of the currency. Pure."""

from headrace.declaration.tenancy_plan import PricePlan

MILLION = 1_000_000
HOUR_S = 3600.0
COST_MOST = 2**53 - 1
"""Largest cost of one request that is kept, nine million units: a thousand of them are still a number to a database."""


class Tariff:
    """Prices of one model, ready for use."""

    __slots__ = ("_cached", "_gpu_s", "_input", "_output", "version")

    def __init__(self, price: PricePlan, version: str | None) -> None:
        self._input = price.input_nanos_per_million
        self._cached = price.cached_input_nanos_per_million
        self._output = price.output_nanos_per_million
        self._gpu_s = price.gpu_hour_nanos / HOUR_S
        self.version = version

    def cost_nanos(self, input_tokens: int, cached_input_tokens: int, output_tokens: int, gpu_s: float | None) -> int:
        """The cost of so much. Cached tokens are a part of the input; GPU time that is not known costs nothing."""
        by_token = input_tokens * self._input + output_tokens * self._output
        if cached_input_tokens:
            cached = cached_input_tokens if cached_input_tokens < input_tokens else input_tokens
            by_token += cached * (self._cached - self._input)
        cost = by_token // MILLION
        if gpu_s and self._gpu_s:
            cost += round(gpu_s * self._gpu_s)
        return cost if cost < COST_MOST else COST_MOST
