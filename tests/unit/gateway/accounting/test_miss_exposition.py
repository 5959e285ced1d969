"""Metrics of explained cache misses."""

from headrace.gateway.accounting.miss_exposition import MissCollector
from headrace.telemetry import catalogue


def test_misses_are_counted_by_cause() -> None:
    """Requests and tokens have one series a cause, and none before anything happened."""
    assert [family.samples for family in MissCollector(dict).collect()] == [[], []]
    found = list(MissCollector(lambda: {"evicted": (3, 700)}).collect())
    specs = (catalogue.CACHE_MISSES, catalogue.CACHE_MISS_TOKENS)
    assert [f"{family.name}_total" for family in found] == [spec.name for spec in specs]
    assert [(family.samples[0].labels, family.samples[0].value) for family in found] == [
        ({"cause": "evicted"}, 3),
        ({"cause": "evicted"}, 700),
    ]
