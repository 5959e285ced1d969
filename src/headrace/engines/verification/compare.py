"""What headrace would pass and read, held against what an engine shows: present, renamed, missing. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import EmittedFlag
from headrace.engines.metrics import Appears, EngineMetric, MetricTable, Purpose, version_key
from headrace.engines.names import explain
from headrace.engines.verification.help_text import HelpFacts


class State(StrEnum):
    """How a name was found."""

    PRESENT = "present"
    OLDER = "older"
    """An older name for the same purpose, which headrace reads as well: no difference."""
    DEPRECATED = "deprecated"
    """Still taken, and announced to go: no difference yet."""
    NOT_YET = "not-yet"
    """On the page only after requests or with a feature: no difference."""
    RENAMED = "renamed"
    MISSING = "missing"


DIFFERENCES = frozenset({State.RENAMED, State.MISSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFinding:
    """One flag that the driver can emit."""

    flag: str
    option: str
    """The declared key it stands for, or "headrace"."""
    state: State
    nearest: str | None = None
    """The name that the engine has instead, as far as names can tell."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFinding:
    """One purpose that headrace reads metrics for."""

    purpose: Purpose
    name: str
    """The name that answers, or the one that was looked for."""
    state: State
    nearest: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the engine showed. None: not looked at."""

    help: HelpFacts | None = None
    metric_names: tuple[str, ...] | None = None
    version: str | None = None
    """As the engine says."""
    origin: str = ""
    """Where it was seen, such as a command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of `headrace engine verify`."""

    engine: EngineKind
    version: str | None
    """Of the engine that was looked at; None where it did not say."""
    wanted_version: str | None
    """--version, where it was given."""
    read_version: str | None
    """Of the engine whose facts headrace has."""
    flags_from: str | None
    """Where flags were looked up; None: they were not."""
    metrics_from: str | None
    flags: tuple[FlagFinding, ...]
    metrics: tuple[MetricFinding, ...]
    differences: int
    notes: tuple[str, ...] = ()


def verify(
    engine: EngineKind,
    *,
    emitted: Sequence[EmittedFlag],
    table: MetricTable | None,
    flags: Look | None,
    metrics: Look | None,
    wanted_version: str | None = None,
) -> Verification:
    """Compare an engine's flags and metrics with the driver's."""
    version = (flags and flags.version) or (metrics and metrics.version) or None
    flag_findings = () if flags is None or flags.help is None else tuple(_flag_findings(engine, emitted, flags.help))
    names = None if metrics is None else metrics.metric_names
    metric_findings = (
        ()
        if names is None or table is None
        else tuple(_metric_findings(engine, table, names, version or wanted_version))
    )
    is_other = wanted_version is not None and version is not None and not _is_same(wanted_version, version)
    found = [finding.state for finding in (*flag_findings, *metric_findings)]
    return Verification(
        engine=engine,
        version=version,
        wanted_version=wanted_version,
        read_version=None if table is None else table.version,
        flags_from=None if flags is None or flags.help is None else flags.origin,
        metrics_from=None if metrics is None or names is None else metrics.origin,
        flags=flag_findings,
        metrics=metric_findings,
        differences=sum(state in DIFFERENCES for state in found) + is_other,
        notes=(f"--version {wanted_version} was asked for, and this is {version}",) if is_other else (),
    )


def _is_same(wanted: str, version: str) -> bool:
    """0.32 is met by 0.32.0, and 0.32.0 by 0.32.0+cpu."""
    wanted, version = wanted.lstrip("vb"), version.lstrip("vb").partition("+")[0]
    return version == wanted or version.startswith(wanted + ".")


def _flag_findings(engine: EngineKind, emitted: Iterable[EmittedFlag], facts: HelpFacts) -> Iterable[FlagFinding]:
    for one in emitted:
        if facts.has(one.flag):
            state = State.DEPRECATED if one.flag in facts.deprecated else State.PRESENT
            yield FlagFinding(flag=one.flag, option=one.option, state=state)
            continue
        nearest = _find_spelling(one.flag, facts.flags)
        yield FlagFinding(
            flag=one.flag,
            option=one.option,
            state=State.MISSING if nearest is None else State.RENAMED,
            nearest=nearest,
            note=explain(one.flag, engine) or "",
        )


def _metric_findings(
    engine: EngineKind, table: MetricTable, names: Sequence[str], version: str | None
) -> Iterable[MetricFinding]:
    """Every purpose that this version has a metric for, or that an older name answers.

    Where the version is not known, or no number, it is taken for the one whose facts were read.
    """
    on_page = frozenset(names)
    known_version = version if version is not None and version_key(version) else table.version
    for purpose in Purpose:
        found = next((metric for metric in table.for_purpose(purpose) if metric.name in on_page), None)
        if found is not None:
            yield _found(engine, purpose, found)
        elif expected := table.for_purpose(purpose, known_version):
            yield _absent(engine, purpose, expected, on_page)


def _found(engine: EngineKind, purpose: Purpose, metric: EngineMetric) -> MetricFinding:
    is_older = metric.until is not None
    note = (explain(metric.name, engine) or f"read until {metric.until}") if is_older else ""
    state = State.OLDER if is_older else State.PRESENT
    return MetricFinding(purpose=purpose, name=metric.name, state=state, note=note)


def _absent(
    engine: EngineKind, purpose: Purpose, candidates: Sequence[EngineMetric], on_page: frozenset[str]
) -> MetricFinding:
    metric = candidates[0]
    explained = explain(metric.name, engine) or ""
    if metric.appears is not Appears.AT_START:
        note = f"appears {metric.appears.value}" + (f": {metric.feature}" if metric.feature else "")
        return MetricFinding(purpose=purpose, name=metric.name, state=State.NOT_YET, note=note)
    nearest = _find_spelling(metric.name, on_page)
    state = State.MISSING if nearest is None else State.RENAMED
    return MetricFinding(purpose=purpose, name=metric.name, state=state, nearest=nearest, note=explained)


def _find_spelling(name: str, known: Iterable[str]) -> str | None:
    """Return the same name in another spelling, else the nearest one."""
    folded = {_fold(one): one for one in known}
    if (same := folded.get(_fold(name))) is not None:
        return same
    close = get_close_matches(_fold(name), folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else None


def _fold(name: str) -> str:
    return name.lower().replace("-", "_").replace(":", "_").strip("_")
