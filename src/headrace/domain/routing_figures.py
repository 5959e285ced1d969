"""What routing, the engines' caches and the pools' loads come to, read when metrics are scraped."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPicks:
    """One endpoint among several that could be chosen from."""

    endpoint: str
    by_prefix: int
    """Attempts sent there whose prompt's beginning was believed to be cached there."""
    by_load: int
    """The others."""
    index_blocks: int
    index_tokens: int
    """What the index believes it to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPrediction:
    """How first tokens of a pool came, as shares of what was predicted."""

    pool: str
    bounds: Sequence[float]
    counts: Sequence[int]
    """One more than bounds: the last is of those above all of them."""
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRouting:
    """One model's choices and cache hits."""

    model: str
    left_out: dict[str, int]
    """By filter: endpoints that were no candidates, added up over choices."""
    braked: int
    """Choices in which an overloaded endpoint was left out."""
    sampled: int
    """Choices for which not all endpoints were looked at."""
    told_tokens: int
    """Input tokens of answers that told what was cached."""
    expected_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFigures:
    """One worker's routing since it started."""

    endpoints: tuple[EndpointPicks, ...]
    pools: tuple[PoolPrediction, ...]
    models: tuple[ModelRouting, ...]
    choices: dict[tuple[str, str], int]
    """By a name that stands for several models, and the model that was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFigures:
    """What one endpoint's engine has told of its KV cache by events."""

    endpoint: str
    stored_blocks: int
    removed_blocks: int
    clears: int
    restarts: int
    held_tokens: dict[str, int]
    """By tier; empty where it is not known."""
    messages: int
    missed: int
    replayed: int
    unreadable: int
    """Messages that could not be read, and events of unknown kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """What the engines of a pool say of themselves, those whose numbers are fresh; ours where only we know."""

    pool: str
    role: str
    """both, prefill or decode."""
    engines: int
    """Whose numbers are fresh."""
    running: float
    waiting: float
    kv_utilization_ratio: float | None
    """The mean of those that tell it."""
    prefill_tokens: int
    held_tokens: int
