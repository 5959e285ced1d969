"""What each replica that headrace runs must be: the declaration resolved to single processes, comparable by value."""

from dataclasses import dataclass

from headrace.declaration.model import Declaration, Model, Pool
from headrace.domain.endpoint import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """All that makes one engine process what it is. Two equal shapes need no restart; a different one does."""

    engine: EngineKind
    model_name: str
    model: Model
    served_model: str
    slots: int
    threads: int
    batch_tokens: int
    embeddings: bool
    extra_args: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """Waits around one replica; they change without a restart."""

    load_timeout_s: float
    stop_s: float
    probe_timeout_s: float
    warm_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """One replica."""

    pool: str
    number: int
    """Unique within the pool while the process lives. A replacement takes the lowest free number."""
    shape: EngineShape
    bounds: ReplicaBounds

    @property
    def endpoint(self) -> str:
        """EndpointId."""
        return f"{self.pool}/{self.number}"

    @property
    def stem(self) -> str:
        """Its name in file names, before escaping."""
        return f"{self.pool}-{self.number}"


def shape_of(declaration: Declaration, pool_name: str, threads: int) -> EngineShape:
    """Resolve one pool's section to the shape of each of its replicas."""
    pool = declaration.pools[pool_name]
    return EngineShape(
        engine=pool.engine,
        model_name=pool.model,
        model=declaration.models[pool.model],
        served_model=pool.served_model or pool.model,
        slots=pool.slots,
        threads=threads,
        batch_tokens=pool.batch_tokens,
        embeddings=pool.embeddings,
        extra_args=pool.extra_args,
    )


def bounds_of(pool: Pool) -> ReplicaBounds:
    return ReplicaBounds(
        load_timeout_s=pool.load_timeout_s,
        stop_s=pool.stop_s,
        probe_timeout_s=pool.probe.timeout_s,
        warm_timeout_s=pool.first_token_timeout_s,
    )
