"""Replica specs for tests of launch lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.declaration.engine_options import EngineOptions
from headrace.engines.contract import Driver, ReplicaSpec

FLAGS = Path(__file__).parents[1] / "captures"
"""Flags of real engines' --help, recorded."""


def make_spec(options: dict[str, Any] | None = None, **changes: Any) -> ReplicaSpec:
    """Return a spec as a declaration with `options` in its pool would give it."""
    defaults: dict[str, Any] = {
        "pool": "main",
        "replica": 0,
        "served_model": "qwen",
        "model_path": Path("/models/qwen"),
        "host": "127.0.0.1",
        "port": 30000,
        "context_tokens": 4096,
        "threads": 1,
        "embeddings": False,
        "slot_dir": Path("/state/slots"),
        "file_dir": Path("/state/launch/main-0"),
        "stop_s": 20.0,
        "options": EngineOptions.model_validate(options or {}),
    }
    return ReplicaSpec(**{**defaults, **changes})


def added_words(driver: Driver, options: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    """Return the flags with their values that declaring `options` adds to the command line, or changes in it."""
    plain = _flags(driver.launch(make_spec()).argv)
    declared = _flags(driver.launch(make_spec(options, **changes)).argv)
    return [word for flag in declared if flag not in plain for word in flag]


def _flags(argv: Sequence[str]) -> list[list[str]]:
    """Split a command line into flags, each with its values."""
    flags: list[list[str]] = []
    for word in argv:
        if word.startswith("--"):
            flags.append([word])
        elif flags:
            flags[-1].append(word)
    return flags


def recorded_flags(name: str) -> set[str]:
    """Return the flags in a recorded --help."""
    lines = (FLAGS / name).read_text().splitlines()
    return {line.split()[0] for line in lines if line.startswith("-")}


def lacking(driver: Driver, options: dict[str, Any], **changes: Any) -> list[str]:
    """Return the dotted keys of the problems that `options` are to an engine."""
    return [".".join(map(str, problem.key)) for problem in driver.check_options(make_spec(options, **changes))]
