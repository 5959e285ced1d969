"""Metrics of the identity providers whose tokens are taken, as families for Prometheus. Beside `exposition.py`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.telemetry.catalogue import IDENTITY_FETCHES, IDENTITY_KEYS_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSample:
    """One identity provider at the moment of a scrape."""

    name: str
    fetched_at: float | None
    """When its keys last came, UTC epoch seconds; None: never."""
    fetched: int
    failed: int


class IdentityCollector(Collector):
    """Makes metric families of what is known of the issuers."""

    def __init__(self, sample: Callable[[], tuple[IssuerSample, ...]]) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        times = GaugeMetricFamily(
            IDENTITY_KEYS_TIME.name, IDENTITY_KEYS_TIME.description, labels=IDENTITY_KEYS_TIME.labels
        )
        fetches = CounterMetricFamily(
            IDENTITY_FETCHES.name.removesuffix("_total"), IDENTITY_FETCHES.description, labels=IDENTITY_FETCHES.labels
        )
        for issuer in self._sample():
            if issuer.fetched_at is not None:
                times.add_metric([issuer.name], issuer.fetched_at)
            fetches.add_metric([issuer.name, "fetched"], issuer.fetched)
            fetches.add_metric([issuer.name, "failed"], issuer.failed)
        yield from (times, fetches)
