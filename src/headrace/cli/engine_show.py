"""`headrace engine show`: everything headrace knows of one engine, with where it was read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.cli.engine_view import EngineArgument, sections_view
from headrace.cli.options import JsonOption
from headrace.cli.output import emit
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import EmittedFlag, FieldRule
from headrace.engines.engine_facts import FACTS, EngineFact
from headrace.engines.metrics import EngineMetric, MetricTable, Purpose
from headrace.engines.names import OldName, old_names
from headrace.engines.registry import driver_for


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingMetric:
    """A purpose without a metric."""

    purpose: Purpose
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """What `headrace engine show --json` prints."""

    engine: EngineKind
    read_version: str | None
    ready_path: str
    paths: tuple[str, ...]
    """API paths that headrace passes on."""
    output_limits: tuple[str, ...]
    facts: tuple[EngineFact, ...]
    flags: tuple[EmittedFlag, ...]
    metrics_path: str | None
    metrics_enabled_by: str | None
    metrics: tuple[EngineMetric, ...]
    lacking: tuple[LackingMetric, ...]
    safe_fields: tuple[str, ...]
    """Request fields that pass."""
    gated_fields: tuple[str, ...]
    """Those that the operator must allow."""
    owned_fields: tuple[str, ...]
    """Those that only the gateway sets."""
    old_names: tuple[OldName, ...]


def show(engine: EngineArgument, as_json: JsonOption = False) -> None:
    """Show one engine: flags, metrics, probes, drain, errors, fields and old names, each with its source."""
    described = describe(engine)
    emit("engine-show", described, as_json=as_json, human=lambda: sections_view(list(_sections(described))))


def describe(engine: EngineKind) -> EngineDescription:
    """Gather what is known of `engine`."""
    driver = driver_for(engine)
    table = driver.metrics
    fields = driver.dialect.fields
    return EngineDescription(
        engine=engine,
        read_version=None if table is None else table.version,
        ready_path=driver.ready_path,
        paths=tuple(sorted(driver.dialect.paths)),
        output_limits=tuple(sorted(driver.dialect.output_limit_aliases)),
        facts=FACTS.get(engine, ()),
        flags=driver.emitted_flags,
        metrics_path=None if table is None else table.path,
        metrics_enabled_by=None if table is None else table.enabled_by,
        metrics=() if table is None else table.metrics,
        lacking=_lacking(table),
        safe_fields=tuple(sorted(name for name, rule in fields.items() if rule is FieldRule.SAFE)),
        gated_fields=tuple(sorted(name for name, rule in fields.items() if rule is FieldRule.GATED)),
        owned_fields=tuple(sorted(name for name, rule in fields.items() if rule is FieldRule.OWNED)),
        old_names=old_names(engine),
    )


def _lacking(table: MetricTable | None) -> tuple[LackingMetric, ...]:
    if table is None:
        return ()
    return tuple(LackingMetric(purpose=purpose, instead=instead) for purpose, instead in table.lacking)


def _sections(
    described: EngineDescription,
) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[object]]]]:
    version = described.read_version or "no version"
    yield (
        f"{described.engine.value}: facts of {version}",
        ("what", "value"),
        [
            ("probe", described.ready_path),
            ("paths", ", ".join(described.paths)),
            ("output limits", ", ".join(described.output_limits)),
            *(
                [("metrics", f"{described.metrics_path}: {described.metrics_enabled_by}")]
                if described.metrics_path
                else []
            ),
        ],
    )
    yield "Behaviour", ("about", "fact", "source"), [(fact.about, fact.text, fact.source) for fact in described.facts]
    yield (
        "Flags that headrace can pass, by option",
        ("option", "flag", "source"),
        [(flag.option, flag.flag, flag.source) for flag in sorted(described.flags, key=lambda flag: flag.option)],
    )
    yield (
        "Metrics by purpose",
        ("purpose", "name", "unit", "versions", "source"),
        [
            (metric.purpose.value, _name(metric), metric.unit or None, _versions(metric), metric.source)
            for metric in described.metrics
        ],
    )
    yield (
        "Purposes without a metric",
        ("purpose", "instead"),
        [(lacking.purpose.value, lacking.instead) for lacking in described.lacking],
    )
    yield (
        "Request fields of its own",
        ("rule", "fields"),
        [
            (rule, ", ".join(names))
            for rule, names in (
                ("pass", described.safe_fields),
                ("pass where allowed", described.gated_fields),
                ("set by headrace alone", described.owned_fields),
            )
            if names
        ],
    )
    yield (
        "Old names",
        ("old", "today"),
        [(row.old, row.explain().removeprefix(f"{row.old} ")) for row in described.old_names],
    )


def _name(metric: EngineMetric) -> str:
    text = " + ".join((metric.name, *metric.plus))
    if metric.over is not None:
        text += f" / {metric.over}"
    return f"{text} by {metric.by}" if metric.by else text


def _versions(metric: EngineMetric) -> str | None:
    if metric.since is None and metric.until is None:
        return None
    return f"{metric.since or ''}..{metric.until or ''}"
