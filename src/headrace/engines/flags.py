"""Launch arguments as data: one row per flag, from which come the command line, the list of flags that `engine verify`
looks up, and the check that nothing declared is dropped. Each engine's table is `engines/<engine>/launch.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.shape import Section
from headrace.engines.contract import EmittedFlag, OptionProblem, ReplicaSpec

HEADRACE = "headrace"
"""`option` of flags that come from no declared option."""

FACTS = frozenset({"memory.of", "memory.device_bytes", "memory.working_bytes", "runtime.env", "extra_args"})
"""Keys that belong to another option or hold for every engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRow:
    """One option, and the words that it puts on the command line."""

    option: str
    """Dotted key within the pool, `models.<key>` for the model's, or HEADRACE."""
    flags: tuple[str, ...]
    """Every flag that `words` can hold."""
    words: Callable[[ReplicaSpec], Sequence[str]]
    """Empty where the option is not declared."""


def always(*words: str, option: str = HEADRACE) -> FlagRow:
    """A flag that is set whatever is declared."""
    return FlagRow(option=option, flags=(words[0],), words=lambda spec: words)


def value(option: str, flag: str, read: Callable[[ReplicaSpec], object]) -> FlagRow:
    """A flag with one value; none where `read` gives None."""

    def words(spec: ReplicaSpec) -> Sequence[str]:
        found = read(spec)
        return () if found is None else (flag, str(found))

    return FlagRow(option=option, flags=(flag,), words=words)


def count(option: str, flag: str, read: Callable[[ReplicaSpec], int]) -> FlagRow:
    """A number of devices; 1 is what every engine has by default."""
    return value(option, flag, lambda spec: read(spec) if read(spec) > 1 else None)


def switch(option: str, read: Callable[[ReplicaSpec], bool | None], on: str | None, off: str | None = None) -> FlagRow:
    """A flag without a value; None says nothing, and a side without a flag is what the engine does anyway."""

    def words(spec: ReplicaSpec) -> Sequence[str]:
        state = read(spec)
        word = None if state is None else on if state else off
        return () if word is None else (word,)

    return FlagRow(option=option, flags=tuple(flag for flag in (on, off) if flag is not None), words=words)


def command_words(rows: Sequence[FlagRow], spec: ReplicaSpec) -> list[str]:
    """Return what `rows` put on the command line of `spec`, in their order."""
    return [word for row in rows for word in row.words(spec)]


def emitted(rows: Sequence[FlagRow], source: str) -> tuple[EmittedFlag, ...]:
    """Return every flag of `rows` with its declared key."""
    return tuple(
        EmittedFlag(flag=flag, option=declared_key(row.option), source=source) for row in rows for flag in row.flags
    )


def declared_key(option: str) -> str:
    """Write a row's option as docs/settings.md does."""
    if option == HEADRACE:
        return option
    if option.startswith("models."):
        return "models.<name>." + option.removeprefix("models.")
    return f"pools.<name>.{option}"


def iter_declared(options: EngineOptions) -> Iterator[str]:
    """Yield the dotted keys of the options that are not at their default."""
    for name in EngineOptions.model_fields:
        found: object = getattr(options, name)
        default: object = EngineOptions.model_fields[name].get_default()
        if not isinstance(found, Section):
            if found != default:
                yield name
            continue
        for key, field in type(found).model_fields.items():
            if field.is_required() or cast("object", getattr(found, key)) != field.get_default():
                yield f"{name}.{key}"


def check_declared(spec: ReplicaSpec, options: frozenset[str], engine: str) -> Iterator[OptionProblem]:
    """Yield a problem for each declared option that an engine with `options` lacks."""
    for option in iter_declared(spec.options):
        if option not in options and option not in FACTS:
            yield OptionProblem(
                key=tuple(option.split(".")), message=f"is an option that {engine} does not have", lacks=option
            )


def check_extra_args(spec: ReplicaSpec, rows: Sequence[FlagRow], aliases: dict[str, str]) -> Iterator[OptionProblem]:
    """Yield a problem for each of `extra_args` that sets what an option or headrace itself sets.

    `aliases`: other spellings of the engine's flags, and flags that are the gateway's alone (`-> HEADRACE`).
    """
    owners = {flag: row.option for row in rows for flag in row.flags}
    for number, word in enumerate(spec.options.extra_args):
        flag = word.partition("=")[0]
        if not flag.startswith("-"):
            continue
        owner = owners.get(flag) or owners.get(flag.replace("_", "-")) or owners.get(flag.replace("-no-", "-", 1))
        owner = owner or _alias_owner(flag, aliases, owners)
        if owner is None:
            continue
        is_ours = owner == HEADRACE
        yield OptionProblem(
            key=("extra_args", number),
            message="is set by headrace itself" if is_ours else f"is what {declared_key(owner)} declares",
            hint="Take it out." if is_ours else f"Declare {declared_key(owner)} instead.",
        )


def _alias_owner(flag: str, aliases: dict[str, str], owners: dict[str, str]) -> str | None:
    meant = aliases.get(flag)
    return None if meant is None else owners.get(meant, meant)
