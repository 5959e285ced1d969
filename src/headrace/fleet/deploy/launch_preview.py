"""What `headrace engine launch` shows: the command of each pool's first replica, as for a start, starting nothing."""

from dataclasses import dataclass
from pathlib import Path

from headrace.declaration.model import Declaration, Model
from headrace.declaration.model_source import FileSource, HuggingFaceSource, parse_source
from headrace.domain.operator_error import UnknownNameError
from headrace.engines.contract import Launch
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.replica_plan import ReplicaPlan, bounds_of, shape_of
from headrace.fleet.deploy.replica_spec import make_spec
from headrace.settings import Settings

UNKNOWN_PORT = 8000
"""Shown where the pool declares no port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPreview:
    """How one pool's first replica would be started."""

    pool: str
    engine: str
    port_is_chosen: bool
    """No port is declared: another one than shown is chosen at the start."""
    launch: Launch


def preview_launches(declaration: Declaration, settings: Settings, *, pool: str | None = None) -> list[LaunchPreview]:
    """Return the launches of all pools that headrace runs, or of `pool`.

    Raises: OperatorError, EngineUnavailableError.
    """
    own = [name for name, section in declaration.pools.items() if not section.is_remote]
    if pool is not None and pool not in own:
        raise UnknownNameError(f"headrace runs no pool {pool}", hint=f"It runs: {', '.join(own) or 'none'}.")
    return [_preview(declaration, name, settings) for name in own if pool in (None, name)]


def _preview(declaration: Declaration, name: str, settings: Settings) -> LaunchPreview:
    pool = declaration.pools[name]
    shape = shape_of(declaration, name, pool.threads or 1)
    plan = ReplicaPlan(pool=name, number=0, shape=shape, bounds=bounds_of(pool))
    spec = make_spec(
        plan,
        settings,
        port=pool.port or UNKNOWN_PORT,
        model_path=place_of(shape.model, settings),
        draft_path=place_of(shape.draft, settings) if shape.draft is not None else None,
    )
    launch = driver_for(pool.engine).launch(spec)
    return LaunchPreview(pool=name, engine=pool.engine.value, port_is_chosen=pool.port is None, launch=launch)


def place_of(model: Model, settings: Settings) -> Path:
    """Return where a model is or will be, without fetching it; of a converted one, where its origin will be."""
    source = parse_source(model.source) if model.source is not None else None
    match source:
        case FileSource(path=path):
            return path
        case HuggingFaceSource(repository=repository, revision=revision, file=None):
            return settings.cache_dir / "snapshots" / repository.replace("/", "--") / revision
        case _:
            return settings.cache_dir / "blobs" / "sha256" / str(model.sha256)
