"""Pages of metrics in Prometheus' text format, made from a table: name, type, and where the value comes from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.engines.simulated.stats import Histogram, MetricsView


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


Labelled = tuple[Mapping[str, str], "float | Histogram"]
Value = float | Histogram | Sequence[Labelled]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric of a page."""

    name: str
    """As in the samples, `_total` of a counter included."""
    kind: Kind
    read: Callable[[MetricsView], Value]


def gauge(name: str, read: Callable[[MetricsView], Value]) -> Family:
    return Family(name, Kind.GAUGE, read)


def counter(name: str, read: Callable[[MetricsView], Value]) -> Family:
    return Family(name, Kind.COUNTER, read)


def histogram(name: str, read: Callable[[MetricsView], Value]) -> Family:
    return Family(name, Kind.HISTOGRAM, read)


def zero(_: MetricsView) -> float:
    """Of what the engine has and the simulation has not."""
    return 0.0


def by(label: str, **values: Callable[[MetricsView], float]) -> Callable[[MetricsView], Value]:
    """One sample per value of a label."""
    return lambda view: [({label: name}, read(view)) for name, read in values.items()]


def page(
    families: Sequence[Family], view: MetricsView, labels: Mapping[str, str], *, created: float | None = None
) -> str:
    """Render a page; every sample carries `labels`. `created` adds the `_created` gauges of prometheus-client."""
    lines: list[str] = []
    for family in families:
        value = family.read(view)
        samples: Sequence[Labelled] = [({}, value)] if isinstance(value, int | float | Histogram) else value
        lines += (f"# HELP {family.name} Simulated.", f"# TYPE {family.name} {family.kind}")
        for own, sample in samples:
            lines += _sample_lines(family.name, _text({**labels, **own}), {**labels, **own}, sample)
        if created is not None and family.kind is not Kind.GAUGE:
            name = family.name.removesuffix("_total") + "_created"
            lines += (f"# HELP {name} Simulated.", f"# TYPE {name} gauge")
            lines += [f"{name}{_text({**labels, **own})} {created}" for own, _ in samples]
    return "\n".join(lines) + "\n"


def _sample_lines(name: str, text: str, labels: Mapping[str, str], sample: float | Histogram) -> list[str]:
    if not isinstance(sample, Histogram):
        return [f"{name}{text} {float(sample)}"]
    lines: list[str] = []
    below = 0
    for bound, count in zip((*sample.bounds, float("inf")), sample.counts, strict=True):
        below += count
        lines.append(f"{name}_bucket{_text({**labels, 'le': _bound(bound)})} {float(below)}")
    return [*lines, f"{name}_count{text} {float(sample.count)}", f"{name}_sum{text} {float(sample.sum)}"]


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))


def _text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
