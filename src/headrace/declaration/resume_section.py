"""`gateway.resume`, `pools.<name>.resume` and `pools.<name>.hedge`: streams that outlive an engine."""

from pydantic import Field

from headrace.declaration.shape import Section


class Resume(Section):
    """Streams that go on at another replica when their engine dies, stalls or is taken away."""

    enabled: bool = Field(default=True, description="Resume streams that were begun; false: they end in an error.")
    max_resumes: int = Field(default=2, ge=1, le=10, description="How often one stream is resumed at most.")
    wait_s: float = Field(
        default=10.0, ge=0, le=600, description="How long a broken stream waits for a ready endpoint, seconds."
    )
    drain_after_s: float = Field(
        default=2.0,
        ge=0,
        le=3600,
        description="A replica that is taken away keeps its streams so long, half as long at least; then they go on "
        "elsewhere.",
    )
    budget_ratio: float = Field(default=0.2, ge=0, le=1, description="Resumes allowed, as a share of recent streams.")
    budget_minimum: int = Field(default=10, ge=0, le=10000, description="Resumes always allowed within ten seconds.")
    kept_bytes: int = Field(
        default=1048576, ge=0, le=67108864, description="Longest text kept of a stream; a longer one is not resumed."
    )
    seeded: bool = Field(
        default=False, description="Resume sampling with a seed too, though its random numbers begin anew."
    )


class PoolResume(Section):
    """`gateway.resume` for one pool."""

    enabled: bool = Field(default=True, description="Streams of this pool are resumed, and may be resumed here.")
    stall_s: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Longest silence within a stream that can be resumed; null: stall_timeout_s.",
    )


class Hedge(Section):
    """A second attempt at another replica when the first token of a stream is late; the slower one is cancelled."""

    enabled: bool = Field(default=False, description="Hedge streams; never those of class offline.")
    budget_ratio: float = Field(default=0.05, ge=0, le=1, description="Hedges allowed, as a share of recent streams.")
    min_delay_s: float = Field(
        default=0.05, ge=0, le=60, description="A first token is never late before this, however fast the pool is."
    )
