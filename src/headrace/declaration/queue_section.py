"""How requests wait for a pool: `pools.<name>.queue`. What becomes of it: `queue_plan.py`, docs/queueing.md."""

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.declaration.shape import Section


class QueueClass(Section):
    """How one class of requests waits; null: the class's own default."""

    longest_wait_s: float | None = Field(
        default=None,
        gt=0,
        le=86400,
        description="Longest wait, then 503; null: 30 interactive, 120 standard, 3600 offline. Seconds.",
    )
    reserved_ratio: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of the tokens served that is kept for it while it waits; null: 0 interactive, 0.2 standard, "
        "0.05 offline.",
    )
    starvation_s: float | None = Field(
        default=None,
        gt=0,
        le=86400,
        description="Longest time in which others are served and none of it; then it goes first. Null: 10 interactive, "
        "20 standard, 60 offline. Seconds.",
    )


class QueueClasses(Section):
    """The three classes, from the most urgent on."""

    interactive: QueueClass = Field(default=QueueClass(), description="Somebody waits at a screen.")
    standard: QueueClass = Field(default=QueueClass(), description="Everything that says nothing else.")
    offline: QueueClass = Field(default=QueueClass(), description="Work for the gaps; gives way to the others.")

    @model_validator(mode="after")
    def _leave_something(self) -> Self:
        reserved = sum(each.reserved_ratio or 0.0 for each in (self.interactive, self.standard, self.offline))
        if reserved >= 1:
            raise ValueError(f"the classes' reserved_ratio add up to {reserved:g}; together they must be below 1")
        return self


class Queue(Section):
    """How much a replica or endpoint of the pool is given at once, and how requests wait for it in the gateway."""

    sequences: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Requests that one endpoint is given at once; null: batching.max_sequences, else what the engine "
        "turns out to run when it has requests waiting.",
    )
    prefill_tokens: int | None = Field(
        default=None,
        ge=128,
        le=16777216,
        description="Prompt tokens that one endpoint may have before it while several tenants use the pool; null: two "
        "steps' worth, where batching.batched_tokens is declared.",
    )
    held_tokens: int | None = Field(
        default=None,
        ge=128,
        description="Tokens of all requests that one endpoint may hold, prompts and answers so far; null: no bound.",
    )
    headroom_ratio: float = Field(
        default=0.0625,
        ge=0,
        le=0.5,
        description="Share of the places that tenants above their fair share leave free while others use the pool.",
    )
    order: Literal["arrival", "deadline"] = Field(
        default="arrival", description="Who of one tenant goes first: who came first, or whose deadline is nearest."
    )
    tenant_requests: int = Field(
        default=512, ge=0, le=1048576, description="Requests of one tenant that may wait; over it: 429."
    )
    tenant_bytes: int = Field(
        default=67108864, ge=0, description="Bodies of one tenant's waiting requests, bytes; over it: 429."
    )
    pool_requests: int = Field(
        default=4096, ge=0, le=1048576, description="Requests of all tenants that may wait; over it: 503."
    )
    pool_bytes: int = Field(default=268435456, ge=0, description="Bodies of all waiting requests, bytes; over it: 503.")
    classes: QueueClasses = Field(default=QueueClasses(), description="How each class waits.")
