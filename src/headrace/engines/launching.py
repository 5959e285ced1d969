"""What the launch modules of vLLM, SGLang and TensorRT-LLM share: program, environment, files, checks of values."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from headrace.declaration.engine_options import Runtime
from headrace.declaration.nearest import did_you_mean
from headrace.engines.contract import OptionProblem, ReplicaSpec
from headrace.engines.flags import FlagRow, value
from headrace.engines.memory_fraction import CannotConvertError, Converted, Meaning, convert_fraction

OFFLINE: Mapping[str, str] = MappingProxyType({"HF_HUB_OFFLINE": "1"})
"""What runs is what was fetched and checked: the engine loads nothing from the Hub by itself."""

EXIT_MARGIN_S = 2.0
"""Within `stop_s`, left for the engine to end after its drain: measured 0.5 s for vLLM 0.32.0 on CPU."""


def program_words(runtime: Runtime, *, module: Sequence[str], program: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start an engine: the declared command, the environment's Python, or a program on PATH."""
    if runtime.command:
        return runtime.command
    return (runtime.python, "-m", *module) if runtime.python is not None else tuple(program)


def drain_s(spec: ReplicaSpec) -> int:
    """The engine's own drain bound: whole seconds, within `stop_s`, after which it is killed."""
    return max(1, int(spec.stop_s - EXIT_MARGIN_S))


def template_path(spec: ReplicaSpec) -> Path:
    return spec.file_dir / "chat_template.jinja"


def template_row(flag: str) -> FlagRow:
    """The row of a declared chat template, which reaches the engine as a file."""
    return value(
        "models.chat_template", flag, lambda spec: template_path(spec) if spec.chat_template is not None else None
    )


def chat_template_file(spec: ReplicaSpec) -> dict[Path, str]:
    return {} if spec.chat_template is None else {template_path(spec): spec.chat_template}


def check_value(key: tuple[str, ...], found: str, allowed: Collection[str], engine: str) -> Iterator[OptionProblem]:
    """Yield a problem where an engine has the option but not this value."""
    if found not in allowed:
        yield OptionProblem(
            key=key, message=f"is a value that {engine} does not have", hint=did_you_mean(found, sorted(allowed))
        )


def fraction_of(spec: ReplicaSpec, meaning: Meaning) -> float | None:
    """Return the memory fraction in the engine's meaning; None where none is declared or it cannot be converted."""
    try:
        converted = _convert(spec, meaning)
    except CannotConvertError:
        return None  # said by fraction_problems, without which nothing is started
    return None if converted is None else converted.fraction


def fraction_note(spec: ReplicaSpec, meaning: Meaning) -> str | None:
    """Say what the declared fraction became."""
    try:
        converted = _convert(spec, meaning)
    except CannotConvertError as error:
        return f"memory.{'.'.join(error.key[1:])} {error.message}"
    return None if converted is None else converted.note


def fraction_problems(spec: ReplicaSpec, meaning: Meaning) -> Iterator[OptionProblem]:
    """Yield why the memory fraction cannot be converted."""
    try:
        _convert(spec, meaning)
    except CannotConvertError as error:
        yield OptionProblem(key=error.key, message=error.message, hint=error.hint)


def _convert(spec: ReplicaSpec, meaning: Meaning) -> Converted | None:
    parallel = spec.options.parallel
    return convert_fraction(
        spec.options.memory, meaning, weight_bytes=spec.weight_bytes, devices=parallel.tensor * parallel.pipeline
    )
