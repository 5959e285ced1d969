"""Expressions of the dashboard, made of the catalogue's metrics: one that does not exist, or a label that its metric
has not, is an error when the module is imported.

Every selector lets through what the dashboard's variables say: the scraped instance, and model, tenant and endpoint
where the metric has the label.
"""

import re
from collections.abc import Iterable

from headrace.telemetry.spec import MetricKind, MetricSpec

INSTANCE = "instance"
"""Label of every series that Prometheus scraped; not the catalogue's."""
VARIABLE_OF_LABEL = {"model": "model", "tenant": "tenant", "endpoint": "endpoint", "replica": "endpoint"}
"""A replica has the name of its endpoint."""
WINDOW = "[$__rate_interval]"
"""Grafana's own: at least four scrapes."""


def series(spec: MetricSpec, *matchers: str, suffix: str = "") -> str:
    """Select a metric's series. `matchers` are Prometheus' own, such as `outcome="failed"`.

    Raises: ValueError: the metric has no such label, or no such suffix.
    """
    if bool(suffix) != (spec.kind is MetricKind.HISTOGRAM):
        raise ValueError(f"{spec.name} is a {spec.kind.value}: it has no series {spec.name}{suffix}")
    labels = (*spec.labels, *(("le",) if suffix == "_bucket" else ()))
    _check(spec, (re.split("[=!]", matcher, maxsplit=1)[0] for matcher in matchers), labels)
    variables = [(INSTANCE, INSTANCE), *((label, VARIABLE_OF_LABEL.get(label)) for label in spec.labels)]
    chosen = [f'{label}=~"${variable}"' for label, variable in variables if variable is not None]
    return f"{spec.name}{suffix}{{{','.join((*chosen, *matchers))}}}"


def summed(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """Add a gauge up."""
    return _grouped("sum", by, series(spec, *matchers), spec)


def largest(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """Of a gauge that several gateways tell alike, or of which the worst counts."""
    return _grouped("max", by, series(spec, *matchers), spec)


def per_second(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = (), suffix: str = "") -> str:
    """How fast a counter, or a histogram's `_count` or `_sum`, grows."""
    return _grouped("sum", by, f"rate({series(spec, *matchers, suffix=suffix)}{WINDOW})", spec)


def largest_per_second(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """The same of a counter that several gateways tell alike."""
    return _grouped("max", by, f"rate({series(spec, *matchers)}{WINDOW})", spec)


def largest_per_minute(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    return f"60 * {largest_per_second(spec, *matchers, by=by)}"


def per_minute(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """For what should be rare: 0.02 a second tells nobody anything."""
    return f"60 * {per_second(spec, *matchers, by=by)}"


def per_hour(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """For what is rarer still, and for money."""
    return f"3600 * {per_second(spec, *matchers, by=by)}"


def troubles(spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """Per minute, and of the many troubles that there are only those that there are now."""
    return f"{per_minute(spec, *matchers, by=by)} > 0"


def quantile(share: float, spec: MetricSpec, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """Estimate a quantile from a histogram's buckets; nothing, rather than not-a-number, where nothing came."""
    buckets = f"rate({series(spec, *matchers, suffix='_bucket')}{WINDOW})"
    return f"histogram_quantile({share:g}, {_grouped('sum', (*by, 'le'), buckets, spec)}) >= 0"


def ratio(part: str, whole: str) -> str:
    """`part` as a share of `whole`; nothing where there is nothing to share."""
    return f"{part} / ({whole} > 0)"


def ratio_or_zero(part: str, whole: str) -> str:
    """The same where `part` may be absent because it never happened: that is 0, as long as there is a `whole`."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def state_number(spec: MetricSpec, label: str, states: Iterable[str]) -> str:
    """Number the states from 1 in the order given, and pick for each of the other labels the highest that anybody
    sees, however many workers see it.
    """
    [subject] = [other for other in spec.labels if other != label]
    chosen = (series(spec, f'{label}="{state}"') for state in states)
    numbered = (f"{number} * ({one} > bool 0)" for number, one in enumerate(chosen, start=1))
    return f"max by ({subject}) ({' or '.join(numbered)})"


def _grouped(operator: str, by: tuple[str, ...], inner: str, spec: MetricSpec) -> str:
    _check(spec, by, (*spec.labels, INSTANCE, "le"))
    grouping = f" by ({', '.join(by)}) " if by else ""
    return f"{operator}{grouping}({inner})"


def _check(spec: MetricSpec, asked: Iterable[str], labels: tuple[str, ...]) -> None:
    for label in asked:
        if label not in labels:
            raise ValueError(f"{spec.name} has no label {label}, but {', '.join(spec.labels) or 'none'}")
