"""Reading an engine's page of metrics: text in, numbers by purpose out. Pure, and never raises on foreign bytes.

Written for the scrape loop: lines are told apart by the name before the brace, and only those that a purpose asks for
are looked at further. prometheus_client's parser, which stops at the first malformed line, is the oracle in the tests.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from headrace.domain.quantiles import interpolated
from headrace.engines.metrics import Combine, EngineMetric, MetricTable, MetricType, Purpose

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|Inf|inf|NaN|nan)\Z")
_ESCAPE = re.compile(r"\\(.)")

UNDEFINED = frozenset({"undefined", "None"})
"""Label values that mean nothing was said. TensorRT-LLM wrote the first, SGLang and vLLM write the second."""

BEYOND = 2.0**63
"""No engine counts so far: an infinite gauge, or two that add up to one, is a bug of its exporter."""
LONGEST_LINE = 16_384
"""Characters; vLLM's line of settings has about 1,500. Longer ones are malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Buckets, sum and count of one purpose, over every series."""

    sum: float
    """In the purpose's unit."""
    count: float
    buckets: tuple[tuple[float, float], ...]
    """Upper bound -> observations at or below it, rising."""

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Estimate as Prometheus does: linear within a bucket, the last finite bound beyond it."""
        return interpolated(self.buckets, self.count, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What one page said. A purpose that is not in a mapping was not on the page: not measured, never 0."""

    values: Mapping[Purpose, float]
    """Gauges and counters."""
    histograms: Mapping[Purpose, Histogram]
    parts: Mapping[Purpose, Mapping[str, float]]
    """The same numbers by the label that splits them, such as cached tokens by source."""
    facts: Mapping[str, str]
    """Settings the engine shows as labels."""
    names: Mapping[Purpose, str]
    """Which metric answered each purpose."""
    malformed: int = 0
    """Lines that could not be read."""
    undefined: int = 0
    """Series of which a label was left undefined by the engine; their values count."""
    not_numbers: int = 0
    """Values that were NaN, or beyond all counts; they count as not measured."""

    def total(self, purpose: Purpose) -> float | None:
        """Everything counted for `purpose`: some engines have a counter where others have a histogram."""
        histogram = self.histograms.get(purpose)
        return self.values.get(purpose) if histogram is None else histogram.sum

    @property
    def running(self) -> float | None:
        return self.values.get(Purpose.RUNNING)

    @property
    def waiting(self) -> float | None:
        return self.values.get(Purpose.WAITING)

    @property
    def kv_utilization_ratio(self) -> float | None:
        return self.values.get(Purpose.KV_UTILIZATION)

    @property
    def prefix_hit_ratio(self) -> float | None:
        """Over the engine's life: hits over queries, or the engine's own rate where it counts neither."""
        queries, hits = self.values.get(Purpose.PREFIX_QUERIES), self.values.get(Purpose.PREFIX_HITS)
        if queries and hits is not None:
            return hits / queries
        return self.values.get(Purpose.PREFIX_HIT_RATIO)


@dataclass(slots=True)
class _Page:
    """Series of the names that were asked for."""

    series: dict[str, list[tuple[dict[str, str], float]]] = field(
        default_factory=dict[str, list[tuple[dict[str, str], float]]]
    )
    malformed: int = 0
    undefined: int = 0
    not_numbers: int = 0


def read_load(text: str, table: MetricTable) -> EngineLoad:
    """Read a page by `table`. Of several names for one purpose the first that is on the page answers."""
    page = _read(text, _wanted(table.metrics))
    values: dict[Purpose, float] = {}
    histograms: dict[Purpose, Histogram] = {}
    parts: dict[Purpose, dict[str, float]] = {}
    facts: dict[str, str] = {}
    names: dict[Purpose, str] = {}
    for metric in table.metrics:
        purpose = metric.purpose
        if purpose in names:
            continue
        if metric.type is MetricType.HISTOGRAM:
            if (histogram := _histogram(page, metric)) is not None:
                histograms[purpose] = histogram
                names[purpose] = metric.name
        elif metric.type is MetricType.LABELS and metric.combine is not Combine.LABEL_SUM:
            for labels, _ in page.series.get(metric.name, ()):
                facts.update(labels)
                names[purpose] = metric.name
        elif (value := _value(page, metric)) is not None:
            values[purpose] = value
            names[purpose] = metric.name
            if metric.by is not None:
                parts[purpose] = _parts(page, metric)
    return EngineLoad(
        values=values,
        histograms=histograms,
        parts=parts,
        facts=facts,
        names=names,
        malformed=page.malformed,
        undefined=page.undefined,
        not_numbers=page.not_numbers,
    )


def iter_names(text: str) -> Iterable[str]:
    """Every metric name on a page, as `# TYPE` lines and series spell it, histograms' parts joined."""
    seen: dict[str, None] = {}
    histograms: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            words = line.split()
            if len(words) >= 4:
                seen.setdefault(words[2])
                if words[3] in ("histogram", "summary"):
                    histograms.add(words[2])
        elif line and not line.startswith("#"):
            name = line.partition("{")[0].split(" ", 1)[0].strip()
            stem = re.sub(r"_(?:bucket|sum|count)\Z", "", name)
            seen.setdefault(stem if stem in histograms else name)
    return seen


@lru_cache(maxsize=64)
def _wanted(metrics: tuple[EngineMetric, ...]) -> frozenset[str]:
    names: set[str] = set()
    for metric in metrics:
        if metric.type is MetricType.HISTOGRAM:
            names.update(metric.name + suffix for suffix in ("_bucket", "_sum", "_count"))
        else:
            names.update(metric.names)
    return frozenset(names)


def _read(text: str, wanted: frozenset[str]) -> _Page:
    page = _Page()
    series = page.series
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        end = line.find("{")
        name = line[:end] if end > 0 else line.partition(" ")[0]
        if name not in wanted:
            if not name[:1].isalpha() and name[:1] not in "_:":
                page.malformed += bool(line.strip())
            continue
        sample = _sample(line, end)
        if sample is None:
            page.malformed += 1
            continue
        labels, value = sample
        if not UNDEFINED.isdisjoint(labels.values()) and not name.endswith("_info"):
            page.undefined += 1
        if not abs(value) < BEYOND:
            page.not_numbers += 1
            continue
        series.setdefault(name, []).append((labels, value))
    return page


def _sample(line: str, brace: int) -> tuple[dict[str, str], float] | None:
    if len(line) > LONGEST_LINE:
        return None
    if brace > 0:
        close = line.rfind("}")
        labels = _labels(line[brace + 1 : close]) if close > brace else None
        if labels is None:
            return None
        rest = line[close + 1 :].split()
    else:
        labels = {}
        rest = line.split()[1:]
    if not 1 <= len(rest) <= 2 or _NUMBER.match(rest[0]) is None:
        return None
    return labels, float(rest[0])


@lru_cache(maxsize=4096)
def _parsed_labels(text: str) -> tuple[tuple[str, str], ...] | None:
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None if text[position:].strip(" ,") else tuple(found)
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value)
        found.append((match[1], value))
        position = match.end()
    return tuple(found)


def _labels(text: str) -> dict[str, str] | None:
    parsed = _parsed_labels(text)
    return None if parsed is None else dict(parsed)


def _counted(page: _Page, metric: EngineMetric, name: str) -> list[tuple[dict[str, str], float]]:
    """The series of `name` that count for `metric`."""
    found = page.series.get(name, [])
    if metric.only_where is not None:
        label, allowed = metric.only_where
        found = [(labels, value) for labels, value in found if labels.get(label) in allowed]
    if metric.not_where is not None:
        label, refused = metric.not_where
        found = [(labels, value) for labels, value in found if labels.get(label) not in refused]
    if metric.total_where is not None:
        label, total = metric.total_where
        totals = [(labels, value) for labels, value in found if labels.get(label, total) == total]
        found = totals or found
    return found


def _values(page: _Page, metric: EngineMetric, name: str) -> list[float]:
    """One value per distinct series, copies of the same number counted once."""
    found = _counted(page, metric, name)
    if not metric.replicas:
        return [value for _, value in found]
    groups: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in found:
        key = tuple(sorted((label, text) for label, text in labels.items() if label not in metric.replicas))
        groups[key] = max(groups.get(key, value), value)
    return list(groups.values())


def _value(page: _Page, metric: EngineMetric) -> float | None:
    if metric.combine is Combine.LABEL_SUM:
        numbers = [labels.get(metric.label or "", "") for labels, _ in page.series.get(metric.name, ())]
        found = [float(number) for number in numbers if _NUMBER.match(number)]
        return sum(found) if found else None
    values = _values(page, metric, metric.name)
    if not values:
        return None
    if metric.over is not None:
        whole = sum(_values(page, metric, metric.over))
        return sum(values) / whole if whole else None
    combined = _combined(metric.combine, values)
    for name in metric.plus:
        combined += sum(_values(page, metric, name))
    return combined * metric.scale


def _combined(how: Combine, values: list[float]) -> float:
    if how is Combine.MAX:
        return max(values)
    if how is Combine.MEAN:
        return sum(values) / len(values)
    return sum(values)


def _parts(page: _Page, metric: EngineMetric) -> dict[str, float]:
    parts: dict[str, float] = {}
    for labels, value in _counted(page, metric, metric.name):
        key = labels.get(metric.by or "", "")
        parts[key] = parts.get(key, 0.0) + value * metric.scale
    return parts


def _histogram(page: _Page, metric: EngineMetric) -> Histogram | None:
    counts = _values(page, metric, metric.name + "_count")
    if not counts:
        return None
    bounds: dict[float, list[float]] = {}
    by_bound: dict[str, _Page] = {}
    for labels, value in page.series.get(metric.name + "_bucket", ()):
        bound = labels.get("le", "")
        if _NUMBER.match(bound) and not math.isnan(float(bound)):
            by_bound.setdefault(bound, _Page()).series.setdefault(metric.name, []).append((labels, value))
    for bound, at_bound in by_bound.items():
        bounds.setdefault(float(bound), []).extend(_values(at_bound, metric, metric.name))
    return Histogram(
        sum=sum(_values(page, metric, metric.name + "_sum")) * metric.scale,
        count=sum(counts),
        buckets=tuple((bound * metric.scale, sum(values)) for bound, values in sorted(bounds.items())),
    )
