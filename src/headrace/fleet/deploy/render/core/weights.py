"""Where a workload finds its weights: the model volume has the layout of headrace's cache folder."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from headrace.declaration.model import Declaration, Model
from headrace.declaration.model_source import FileSource, HuggingFaceSource, parse_source
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.model import RenderNote, Severity, Weights
from headrace.fleet.deploy.render.core.site import Site


def weights_of(declaration: Declaration, pool_name: str, site: Site) -> tuple[Weights, ...]:
    """Return the pool's model, then its draft."""
    pool = declaration.pools[pool_name]
    speculative = pool.options.speculative
    names = [pool.model, *([speculative.model] if speculative is not None and speculative.model else [])]
    return tuple(
        _weights(name, declaration.models[name].for_engine(pool.engine), site, is_draft=number > 0)
        for number, name in enumerate(names)
    )


def _weights(name: str, model: Model, site: Site, *, is_draft: bool) -> Weights:
    source = parse_source(str(model.source))
    relative = None if isinstance(source, FileSource) else _place(model)
    if relative is not None:
        path = site.weights_dir / relative
    elif not site.is_container:
        path = PurePosixPath(str(model.source).removeprefix("file:"))
    else:
        path = site.weights_dir / "local" / PurePosixPath(str(model.source)).name
    return Weights(
        model=name,
        is_draft=is_draft,
        source=source,
        source_text=str(model.source),
        sha256=model.sha256,
        weight_bytes=model.weight_bytes,
        path=path,
        relative_path=relative,
    )


def _place(model: Model) -> PurePosixPath:
    source = parse_source(str(model.source))
    if isinstance(source, HuggingFaceSource) and source.file is None:
        return PurePosixPath("snapshots") / source.repository.replace("/", "--") / source.revision
    return PurePosixPath("blobs/sha256") / str(model.sha256)


def weights_notes(declaration: Declaration, pool_name: str) -> Iterator[RenderNote]:
    """Yield why the place of a pool's weights cannot be known beforehand."""
    pool = declaration.pools[pool_name]
    speculative = pool.options.speculative
    for name in (pool.model, speculative.model if speculative is not None else None):
        if name is not None:
            yield from _model_notes(name, declaration.models[name].for_engine(pool.engine), pool.engine)


def _model_notes(name: str, model: Model, engine: EngineKind) -> Iterator[RenderNote]:
    source = parse_source(str(model.source))
    if isinstance(source, HuggingFaceSource) and source.file is None and not source.is_pinned:
        yield RenderNote(
            severity=Severity.ERROR,
            key=f"models.{name}.source",
            message=f'names the revision "{source.revision}", which can move: the folder it will be in is not known',
            hint="Give the commit's 40 hex digits",
        )
    if model.requantize is not None:
        yield RenderNote(
            severity=Severity.WARNING,
            key=f"models.{name}.requantize",
            message=f"is not rendered: {engine.value} reads the file as it is fetched",
            hint="Convert it once with `headrace models --fetch` and declare the result as file:",
        )
