"""The tables of engines' metrics are complete and say where each row comes from."""

from collections.abc import Mapping

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.engines.metrics import MetricTable, Purpose, is_within, version_key
from headrace.engines.registry import DRIVERS, driver_for

TABLES: Mapping[EngineKind, MetricTable] = {
    kind: table for kind in DRIVERS if (table := driver_for(kind).metrics) is not None
}


@pytest.mark.parametrize("kind", list(TABLES))
def test_every_purpose_has_a_name_or_a_reason(kind: EngineKind) -> None:
    """For each thing an operator asks, an engine has a metric or it is said why not and what to use instead."""
    table = TABLES[kind]
    lacking = dict(table.lacking)
    answered = {metric.purpose for metric in table.metrics if metric.until is None}
    assert answered | set(lacking) == set(Purpose)
    assert sorted(answered & set(lacking)) == []


@pytest.mark.parametrize("kind", list(TABLES))
def test_every_row_names_its_source(kind: EngineKind) -> None:
    """A name can be looked up again in the engine's own source."""
    assert [metric.name for metric in TABLES[kind].metrics if "/" not in metric.source] == []


@pytest.mark.parametrize("kind", list(TABLES))
def test_the_newest_name_is_tried_first(kind: EngineKind) -> None:
    """Among the names of one purpose, those that are gone from the newest version come last."""
    for purpose in Purpose:
        gone = [metric.until is not None for metric in TABLES[kind].for_purpose(purpose)]
        assert gone == sorted(gone)


def test_a_version_selects_its_names() -> None:
    """vLLM 0.6 and 0.33 are asked for different names."""
    table = TABLES[EngineKind.VLLM]
    assert [metric.name for metric in table.for_purpose(Purpose.KV_UTILIZATION, "0.6.6.post1")] == [
        "vllm:gpu_cache_usage_perc"
    ]
    assert [metric.name for metric in table.for_purpose(Purpose.KV_UTILIZATION, "0.33.0")] == [
        "vllm:kv_cache_usage_perc"
    ]


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("0.5.4.post2", (0, 5, 4)),
        ("1.3.0rc26", (1, 3, 0)),
        ("b11549", (11549,)),
        ("v0.32.0+cpu", (0, 32, 0)),
        ("main", ()),
        ("", ()),
    ],
)
def test_versions_are_ordered_by_their_numbers(version: str, key: tuple[int, ...]) -> None:
    """Post releases, candidates and local builds belong to their release."""
    assert version_key(version) == key


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.9.1", False), ("0.9.2", True), ("0.11.0", True), ("0.11.1", False), ("0.12.0", False), ("nightly", True)],
)
def test_a_range_of_versions_includes_its_ends(version: str, *, expected: bool) -> None:
    """A version that cannot be compared is within every range."""
    assert is_within(version, "0.9.2", "0.11.0") is expected


def test_a_release_line_as_upper_bound_includes_its_patches() -> None:
    """Until 1.2 includes 1.2.1."""
    assert is_within("1.2.1", None, "1.2")
    assert not is_within("1.3.0", None, "1.2")
