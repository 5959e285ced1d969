"""How the gateway leads requests from prefill to decode: `pools.<name>.handover`. The engines' part: `disaggregation`.

How it decides, and what follows a failure: docs/disaggregation.md.
"""

from pydantic import Field

from headrace.declaration.shape import Section


class Handover(Section):
    """Of a pool with a `disaggregation.role`."""

    min_tokens: int = Field(
        default=512,
        ge=1,
        description="Of a prefill pool: prompts with fewer tokens to compute are answered by one engine.",
    )
    min_gain_s: float = Field(
        default=0.02,
        ge=-3600,
        le=600,
        description="Of a prefill pool: a request is split where that is predicted to save more than this, seconds; "
        "below 0: even where it costs time.",
    )
    timeout_s: float = Field(
        default=4.0,
        ge=0.1,
        le=120,
        description="Of a prefill pool: a step that is overdue by more has failed, and the request is answered by one "
        "engine, seconds.",
    )
    warm_up: bool = Field(
        default=True,
        description="Of a prefill pool: hand a short prompt over at start, and when an engine is back, so that no "
        "caller waits for the first connection between two engines.",
    )
    folder: str | None = Field(
        default=None,
        description="llama.cpp: the folder in which both engines save slots, as the gateway sees it; null: that of the "
        "replicas that headrace runs.",
    )
    slots: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="llama.cpp: slots of one engine; null: `batching.max_sequences`, or its usual number.",
    )
    bootstrap_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="SGLang: port at which a prefill engine meets decode engines; null: 20000 above its own, as "
        "headrace starts it (SGLang's own default is 8998).",
    )
    kv_bytes_per_token: int | None = Field(
        default=None,
        ge=1,
        description="KV cache of one token, bytes; null: from the catalogue of models, else guessed, and learned by "
        "time alone.",
    )
