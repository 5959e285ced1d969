"""Where an instance's declaration comes from: a file, nothing (built in), or an engine that already runs."""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.declaration.builtin import attach_declaration
from headrace.declaration.load import Loaded, in_memory_with, load_declaration
from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError
from headrace.engines.declared import lint_engines
from headrace.fleet.deploy.attach import EndpointUnreachableError, detect_engine
from headrace.fleet.deploy.state_files import SupervisorFile

ANOTHER_START = (
    "`headrace down` ends it, and `headrace up` then starts the other; beside it, give the other one its own "
    "HEADRACE_STATE_DIR and addresses."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `headrace up` was told to run."""

    config: Path | None = None
    """None with no endpoint: the built-in declaration."""
    overrides: tuple[str, ...] = ()
    """`key.path=value` texts of `--set`; they stay in force at each reload."""
    endpoint: str | None = None
    """URL of an engine that already runs."""
    engine: EngineKind | None = None
    """What answers there; None until it was asked."""
    served_model: str | None = None
    context_tokens: int | None = None

    def arguments(self) -> list[str]:
        """As arguments of `python -m headrace.wiring`."""
        words = [f"--set={text}" for text in self.overrides]
        if self.endpoint is None:
            return [*(["--config", str(self.config)] if self.config is not None else []), *words]
        words += ["--endpoint", self.endpoint]
        words += ["--engine", self.engine.value] if self.engine is not None else []
        words += ["--served-model", self.served_model] if self.served_model is not None else []
        return [*words, "--context-tokens", str(self.context_tokens)] if self.context_tokens is not None else words

    @property
    def shown(self) -> str:
        """What is run, for people."""
        if self.endpoint is not None:
            return f"the engine at {self.endpoint}"
        return str(self.config or "the built-in declaration")

    def loader(self, environ: Mapping[str, str]) -> Callable[[], Loaded]:
        """Return the function that reads the declaration, now and at each reload."""
        url = self.endpoint
        if url is not None:
            declared = attach_declaration(
                url, engine=self.engine, model=self.served_model, context_tokens=self.context_tokens
            )
            return lambda: in_memory_with(declared, self.overrides, environ=environ)
        return lambda: load_declaration(self.config, environ=environ, overrides=self.overrides, checks=lint_engines)


def argument_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of what `Source.arguments` writes."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--endpoint")
    parser.add_argument("--engine", type=EngineKind)
    parser.add_argument("--served-model")
    parser.add_argument("--context-tokens", type=int)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    return parser


def source_of(options: argparse.Namespace) -> Source:
    """Return what the parsed arguments say."""
    return Source(
        config=options.config,
        overrides=tuple(options.overrides),
        endpoint=options.endpoint,
        engine=options.engine,
        served_model=options.served_model,
        context_tokens=options.context_tokens,
    )


def running_source(running: SupervisorFile) -> Source:
    """Return what a running instance was told to run."""
    if running.arguments is None:
        return Source(config=None if running.config_file is None else Path(running.config_file))
    options, _ = argument_parser("headrace.wiring").parse_known_args(running.arguments)
    return source_of(options)


def refuse_another(asked: Source, running: Source) -> None:
    """Refuse to take an instance for one that was asked for: another file, engine or `--set` needs another start.

    Nothing asked for is whatever runs. Raises: OperatorError.
    """
    if asked.endpoint is not None:
        is_another = running.endpoint is None or _plain(asked.endpoint) != _plain(running.endpoint)
    else:
        is_another = asked.config is not None and (
            running.config is None or asked.config.resolve() != running.config.resolve()
        )
    if is_another:
        is_missing = asked.config is not None and not asked.config.exists()
        raise OperatorError(
            f"headrace runs already, on {running.shown}, not on {asked.shown}{' (no such file)' if is_missing else ''}",
            hint=ANOTHER_START,
        )
    if asked.overrides and asked.overrides != running.overrides:
        told = " ".join(f"--set {text}" for text in running.overrides) or "no --set"
        raise OperatorError(f"headrace runs already, started with {told}", hint=ANOTHER_START)


def _plain(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def ask_endpoint(source: Source) -> Source:
    """Find out what answers at the endpoint, where there is one and it was not asked yet.

    Raises: OperatorError.
    """
    if source.endpoint is None or source.engine is not None:
        return source
    try:
        found = asyncio.run(detect_engine(source.endpoint))
    except EndpointUnreachableError as error:
        raise OperatorError(str(error)) from error
    if found.needs_credentials:
        raise OperatorError(
            f"the engine at {source.endpoint} wants credentials",
            hint="Declare it in headrace.yaml, in a pool with `credentials: {bearer: ${env:NAME}}`.",
        )
    served = found.models[0] if found.models else None
    context_tokens = found.context_tokens.get(served) if served is not None else None
    return replace(source, engine=found.engine, served_model=served, context_tokens=context_tokens)
