"""`headrace models`: what is declared, where it comes from, whether it is here and whether it can be called."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.control_client import ControlClient
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import console, emit, table
from headrace.declaration.load import find_declaration, load_declaration
from headrace.declaration.model import Declaration, Model
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.models import FetchProgress, ModelFetchError, ModelStore, describe
from headrace.fleet.deploy.state_files import find_supervisor
from headrace.settings import Settings, load_settings

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()

FetchOption = Annotated[bool, typer.Option("--fetch", help="Fetch and check the weights now, so that `up` is quick.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One declared model."""

    model: str
    source: str | None
    requantize: str | None
    is_cached: bool | None
    """None: nothing to keep (only remote endpoints serve it), or a source that cannot be looked up without a fetch."""
    context_tokens: int
    pools: tuple[str, ...]
    state: str | None
    """What the running instance says; None where none runs."""
    path: str | None = None
    """Where the weights are, after --fetch."""


@app.callback(invoke_without_command=True, epilog="Example: headrace models --fetch")
def models(
    context: typer.Context, config: ConfigOption = None, is_fetching: FetchOption = False, as_json: JsonOption = False
) -> None:
    """List the declared models: source, whether it is cached, pools, state; with --fetch, fetch the weights."""
    if context.invoked_subcommand is None:
        list_models(config, is_fetching, as_json)


@app.command("list", epilog="Example: headrace models list --json")
def list_models(config: ConfigOption = None, is_fetching: FetchOption = False, as_json: JsonOption = False) -> None:
    """List the declared models, as `headrace models` does."""
    settings = load_settings()
    path = find_declaration(config, environ=os.environ)
    declaration = load_declaration(path, environ=os.environ).declaration
    states = _states(settings)
    store = ModelStore(settings.cache_dir)
    rows: list[ModelRow] = []
    for name, form, pools in forms_of(declaration):
        fetched = _fetch(store, name, form, is_silent=as_json) if is_fetching and form.source else None
        rows.append(_row(settings, name, form, pools, states.get(name), fetched))
    emit("models", rows, as_json=as_json, human=lambda: models_view(rows, declaration))


def forms_of(declaration: Declaration) -> Iterator[tuple[str, Model, tuple[str, ...]]]:
    """Yield each model in each form that its pools' engines read, with those pools."""
    for name, model in declaration.models.items():
        forms: dict[str | None, tuple[Model, list[str]]] = {}
        for pool, section in declaration.pools.items():
            speculative = section.options.speculative
            if name == section.model or (speculative is not None and name == speculative.model):
                form = model.for_engine(section.engine)
                forms.setdefault(form.source, (form, []))[1].append(pool)
        for form, pools in forms.values() or [(model, [])]:
            yield name, form, tuple(pools)


def models_view(rows: Sequence[ModelRow], declaration: Declaration) -> "RenderableType":
    """The models and, where there are any, the names that stand for several of them."""
    from rich.console import Group

    autos = [(name, ", ".join(auto.models), auto.prefer) for name, auto in declaration.auto_models.items()]
    shown: list[RenderableType] = [models_table(rows)]
    if autos:
        shown.append(table(("auto model", "stands for", "prefers"), autos))
    return Group(*shown)


def models_table(rows: Sequence[ModelRow]) -> "RenderableType":
    """Show models, where they come from and what they do."""
    columns = ("model", "source", "cached", "requantize", "context tokens", "pools", "state")
    cells = [
        (
            row.model,
            row.source,
            _yes_no(row.is_cached),
            row.requantize,
            row.context_tokens,
            ", ".join(row.pools) or None,
            row.state,
        )
        for row in rows
    ]
    return table(columns, cells, expendable=("source", "requantize"))


def _row(
    settings: Settings, name: str, model: Model, pools: tuple[str, ...], state: str | None, fetched: str | None
) -> ModelRow:
    return ModelRow(
        model=name,
        source=model.source,
        requantize=model.requantize,
        is_cached=True if fetched else _is_cached(settings, model),
        context_tokens=model.context_tokens,
        pools=pools,
        state=state,
        path=fetched,
    )


def _states(settings: Settings) -> dict[str, str]:
    if find_supervisor(settings) is None:
        return {}
    with ControlClient(settings) as client:
        status = client.try_status()
    return {model.model: model.state for model in status.models} if status else {}


def _is_cached(settings: Settings, model: Model) -> bool | None:
    if model.source is None:
        return None
    if model.source.startswith("file:"):
        return os.path.exists(model.source.removeprefix("file:"))
    if model.sha256 is None:
        return None
    return (settings.cache_dir / "blobs" / "sha256" / model.sha256).exists()


def _fetch(store: ModelStore, name: str, model: Model, *, is_silent: bool) -> str:
    out = console(stderr=True)
    said: set[str] = set()

    def report(progress: FetchProgress) -> None:
        key = f"{progress.phase.value} {progress.what}"
        if out.is_terminal:
            out.print(f"{name}: {describe(progress)}", end="\r", soft_wrap=True)
        elif key not in said:
            said.add(key)
            out.print(f"{name}: {describe(progress)}", soft_wrap=True)

    source = str(model.source)
    try:
        if is_silent:
            return str(store.ensure_now(source, model.sha256, model.requantize))
        return str(store.ensure_now(source, model.sha256, model.requantize, progress=report))
    except ModelFetchError as error:
        raise OperatorError(f"model {name}: {error}") from error


def _yes_no(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
