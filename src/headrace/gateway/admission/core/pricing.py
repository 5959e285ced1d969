"""What a request costs by the price table, in billionths of the currency. Pure."""

from headrace.declaration.tenancy_plan import PricePlan

MILLION = 1_000_000
HOUR_S = 3600.0


def cost_nanos(
    price: PricePlan, *, input_tokens: int, cached_input_tokens: int, output_tokens: int, gpu_s: float | None
) -> int:
    """The cost of so much. Cached tokens are a part of the input; GPU time that is not known costs nothing."""
    cached = min(cached_input_tokens, input_tokens)
    by_token = (
        (input_tokens - cached) * price.input_nanos_per_million
        + cached * price.cached_input_nanos_per_million
        + output_tokens * price.output_nanos_per_million
    )
    by_time = price.gpu_hour_nanos * gpu_s / HOUR_S if gpu_s else 0.0
    return by_token // MILLION + round(by_time)
