"""Where an instance's declaration comes from: a file, nothing (built in), or an engine that already runs."""

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

    def loader(self, environ: Mapping[str, str]) -> Callable[[], Loaded]:
        """Return the function that reads the declaration, now and at each reload."""
        url = self.endpoint
        if url is not None:
            declared = attach_declaration(
                url, engine=self.engine, model=self.served_model, context_tokens=self.context_tokens
            )
            return lambda: in_memory_with(declared, self.overrides, environ=environ)
        return lambda: load_declaration(self.config, environ=environ, overrides=self.overrides, checks=lint_engines)


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
