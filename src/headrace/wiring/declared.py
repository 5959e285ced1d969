"""Where an instance's declaration comes from: a file, nothing (built in), or an engine that already runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.declaration.builtin import attach_declaration
from headrace.declaration.load import Loaded, in_memory, load_declaration


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `headrace up` was told to run."""

    config: Path | None = None
    """None with no endpoint: the built-in declaration."""
    endpoint: str | None = None
    """URL of an engine that already runs."""

    def arguments(self) -> list[str]:
        """As arguments of `python -m headrace.wiring`."""
        if self.endpoint is not None:
            return ["--endpoint", self.endpoint]
        return ["--config", str(self.config)] if self.config is not None else []

    def loader(self, environ: Mapping[str, str]) -> Callable[[], Loaded]:
        """Return the function that reads the declaration, now and at each reload."""
        if self.endpoint is not None:
            return lambda: _attach(str(self.endpoint))
        return lambda: load_declaration(self.config, environ=environ)


def _attach(url: str) -> Loaded:
    from headrace.fleet.deploy.attach import detect_engine

    found = detect_engine(url)
    return in_memory(attach_declaration(url, engine=found.engine, model=found.model))
