"""Which endpoint answers: `models.<name>.routing` and `pools.<name>.accepts`. What becomes of it: docs/routing.md."""

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.declaration.shape import Name, Section
from headrace.domain.request import RequestClass

ScorerKind = Literal[
    "predicted-ttft",
    "prefill-work",
    "decode-slowdown",
    "least-loaded",
    "round-robin",
    "prefix-match",
    "session-affinity",
]


class RoutingScorer(Section):
    """One reason to prefer an endpoint."""

    kind: ScorerKind = Field(description="Which reason: a row of the table in docs/routing.md.")
    weight: float = Field(
        default=1.0, ge=0, le=1000, description="What a second of it counts, for interactive and standard requests."
    )
    offline_weight: float | None = Field(
        default=None, ge=0, le=1000, description="What it counts for offline requests; null: as weight."
    )


class PrefixIndexSection(Section):
    """What the gateway remembers of prompts, to send what begins alike to the same endpoint."""

    enabled: bool = Field(default=True, description="Look at prompts; false: load alone decides.")
    kv_tokens: int = Field(
        default=400000,
        ge=1024,
        description="KV cache of one endpoint, tokens, where its engine does not tell.",
    )
    max_blocks: int = Field(
        default=100000,
        ge=100,
        le=10000000,
        description="Blocks remembered of one endpoint, whatever its KV cache holds; about 150 bytes each.",
    )


class SessionAffinity(Section):
    """Requests of one session go to one endpoint while it is not overloaded."""

    field: str = Field(
        default="prompt_cache_key",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$",
        description="Body field that names the session; its value must be a string.",
    )


class Routing(Section):
    """How requests for a model are placed on the endpoints of its pools."""

    scorers: tuple[RoutingScorer, ...] = Field(
        default=(
            RoutingScorer(kind="predicted-ttft", weight=1.0, offline_weight=0.2),
            RoutingScorer(kind="prefill-work", weight=1.0),
            RoutingScorer(kind="decode-slowdown", weight=0.25),
        ),
        min_length=1,
        description="Reasons, added up; the endpoint with the lowest sum is picked.",
    )
    brake_factor: float | None = Field(
        default=1.5,
        gt=1,
        le=100,
        description="An endpoint with more requests in flight than this times the mean gets no more, so that a prefix "
        "everybody uses spreads; null: never.",
    )
    sample_above: int = Field(
        default=64,
        ge=2,
        le=100000,
        description="With more endpoints than this, a few are looked at: those that hold the prompt, and others.",
    )
    prefix_index: PrefixIndexSection = Field(default=PrefixIndexSection(), description="Memory for prompts.")
    affinity: SessionAffinity = Field(
        default=SessionAffinity(), description="For the scorer session-affinity: what a session is."
    )
    explain_misses: bool = Field(
        default=True,
        description="Find out why prompts that begin alike were not found cached (`headrace cache misses`), from keyed "
        "hashes of a sample; false: prompts of this model are not looked at for it.",
    )
    split: dict[Name, float] = Field(
        default={},
        description="Weight by pool, such as 95 and 5 for a canary; a pool left out has none. Empty: no split.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = [scorer.kind for scorer in self.scorers]
        if len(set(kinds)) < len(kinds):
            raise ValueError("a kind of scorer is given twice; give each once, with its weight")
        if any(weight < 0 for weight in self.split.values()):
            raise ValueError("weights of split must be 0 or more")
        if self.split and not sum(self.split.values()):
            raise ValueError("split gives every pool weight 0: nothing would be served")
        return self


class Accepts(Section):
    """Which requests a pool takes; others go to the model's other pools, or are refused where there are none."""

    tenants: tuple[Name, ...] = Field(default=(), description="Only of these tenants; empty: of all.")
    classes: tuple[RequestClass, ...] = Field(default=(), description="Only of these classes; empty: of all.")
    min_input_tokens: int | None = Field(
        default=None, ge=1, description="Only prompts estimated at so many tokens or more."
    )
    max_input_tokens: int | None = Field(
        default=None, ge=1, description="Only prompts estimated at so many tokens or fewer."
    )
    overflow: bool = Field(
        default=True,
        description="Take what classes and lengths leave out when no other pool of the model is usable; tenants are "
        "never overridden.",
    )
    overflow_when: Literal["down", "full"] = Field(
        default="down",
        description="down: only then. full: also while no endpoint of the pools that are for it has a free place "
        "(queue.sequences, or what the engine says), before it waits for one.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        least, most = self.min_input_tokens, self.max_input_tokens
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_input_tokens is {least}, above max_input_tokens {most}: no prompt would do")
        if self.overflow_when == "full" and not self.overflow:
            raise ValueError("overflow_when says full, and overflow is false: take one of the two out")
        return self
