"""What each replica that headrace runs must be: the declaration resolved to single processes, comparable by value."""

from dataclasses import dataclass

from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.model import Declaration, Model, Pool
from headrace.domain.endpoint import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """All that makes one engine process what it is. Two equal shapes need no restart; a different one does."""

    engine: EngineKind
    model_name: str
    model: Model
    """As its engine reads it."""
    draft: Model | None
    """The model of speculative decoding, where one is declared."""
    served_model: str
    threads: int
    embeddings: bool
    options: EngineOptions
    port: int | None
    """Of the pool's first replica; None: a free one is chosen."""
    told_bounds_s: tuple[float, ...]
    """Bounds that the engine itself is told (vLLM: drain, load), so that a change of them needs a restart."""


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
    options = pool.options
    draft = options.speculative.model if options.speculative is not None else None
    return EngineShape(
        engine=pool.engine,
        model_name=pool.model,
        model=declaration.models[pool.model].for_engine(pool.engine),
        draft=declaration.models[draft].for_engine(pool.engine) if draft is not None else None,
        served_model=pool.served_model or pool.model,
        threads=threads,
        embeddings=pool.embeddings,
        options=options,
        port=pool.port,
        told_bounds_s=(pool.stop_s, pool.load_timeout_s) if pool.engine is EngineKind.VLLM else (),
    )


def computes_on_cpu(pool: Pool) -> bool:
    """Whether the pool's replicas share the machine's cores."""
    return pool.engine is EngineKind.LLAMACPP or pool.options.runtime.device == "cpu"


def bounds_of(pool: Pool) -> ReplicaBounds:
    return ReplicaBounds(
        load_timeout_s=pool.load_timeout_s,
        stop_s=pool.stop_s,
        probe_timeout_s=pool.probe.timeout_s,
        warm_timeout_s=pool.first_token_timeout_s,
    )
