"""What inference costs: `prices`, one table with a version that the ledger keeps beside each cost."""

from pydantic import Field

from headrace.declaration.shape import Name, Section

PRICE_MOST = 10**9


class ModelPrice(Section):
    """Prices of one model, in the table's currency. Parts that are not given cost nothing."""

    input_per_million: float = Field(default=0.0, ge=0, le=PRICE_MOST, description="Per million input tokens.")
    cached_input_per_million: float | None = Field(
        default=None,
        ge=0,
        le=PRICE_MOST,
        description="Per million input tokens that the engine found in its cache; null: as other input.",
    )
    output_per_million: float = Field(default=0.0, ge=0, le=PRICE_MOST, description="Per million output tokens.")
    gpu_hour: float = Field(
        default=0.0, ge=0, le=PRICE_MOST, description="Per hour of one GPU; needs the pools' rates (given or learned)."
    )


class Prices(Section):
    """The price table. Costs in the ledger are as they were when the request ended, with the version."""

    version: str = Field(
        default="1",
        min_length=1,
        max_length=64,
        description="Name of this table; change it with the prices. The ledger keeps it.",
    )
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$", description="ISO 4217 code; shown, never converted.")
    models: dict[Name, ModelPrice] = Field(default={}, description="Prices by model.")


class PoolRates(Section):
    """How fast one replica of a pool works when it is full: what a request's GPU time is computed from."""

    prefill_tokens_per_s: float | None = Field(
        default=None, gt=0, description="Input tokens of one replica per second, all requests together; null: learned."
    )
    decode_tokens_per_s: float | None = Field(
        default=None, gt=0, description="Output tokens of one replica per second, all requests together; null: learned."
    )
