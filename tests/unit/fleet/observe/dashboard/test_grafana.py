"""The dashboard as Grafana's file: what Grafana needs to import it, draw it and leave nothing lying over another."""

import json
from typing import Any

import yaml

from headrace.fleet.observe.dashboard.grafana import dashboard, dashboard_config_map, dashboard_file
from headrace.fleet.observe.dashboard.panel import Shape
from headrace.fleet.observe.dashboard.rows import ROWS
from headrace.telemetry import catalogue

MADE = dashboard()
ROW_PANELS = [panel for panel in MADE["panels"] if panel["type"] == "row"]
INNER = [panel for row in ROW_PANELS for panel in row["panels"]]
DRAWN = [panel for panel in MADE["panels"] if panel["type"] != "row"] + INNER
CHOSEN = {"type": "prometheus", "uid": "${datasource}"}


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    at = panel["gridPos"]
    assert at["x"] + at["w"] <= 24
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def is_free_of_overlaps(panels: list[dict[str, Any]]) -> bool:
    taken = [cell for panel in panels for cell in cells(panel)]
    return len(taken) == len(set(taken))


def test_rows_and_panels_are_those_declared() -> None:
    """In their order, each with a number of its own."""
    assert [row["title"] for row in ROW_PANELS] == [row.title for row in ROWS]
    assert sorted(panel["title"] for panel in DRAWN) == sorted(panel.title for row in ROWS for panel in row.panels)
    numbers = [panel["id"] for panel in (*MADE["panels"], *INNER)]
    assert len(numbers) == len(set(numbers))


def test_nothing_lies_over_another() -> None:
    """Neither when the page comes up, nor within a row that is opened."""
    assert is_free_of_overlaps(MADE["panels"])
    for row in ROW_PANELS:
        assert is_free_of_overlaps([row, *row["panels"]])
        assert all(panel["gridPos"]["y"] > row["gridPos"]["y"] for panel in row["panels"])


def test_what_is_needed_first_is_open_and_the_rest_asks_for_nothing_yet() -> None:
    """Closed rows hold their panels, so that Grafana does not query them."""
    closed = {row["title"]: bool(row["panels"]) for row in ROW_PANELS if row["collapsed"]}
    assert [row["title"] for row in ROW_PANELS][:3] == ["Is it fine?", "Latency (observer: gateway)", "Load"]
    assert list(closed) == [row["title"] for row in ROW_PANELS][3:]
    assert all(closed.values())


def test_every_query_goes_to_the_chosen_data_source() -> None:
    """No panel is bound to somebody's Prometheus; several queries of one panel can be told apart."""
    for panel in DRAWN:
        assert panel["datasource"] == CHOSEN
        assert all(target["datasource"] == CHOSEN for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["instant"] is not target["range"] for target in panel["targets"])


def test_numbers_are_of_now() -> None:
    """What is gone shows no data: a number that stood still would lie."""
    numbers = [panel for panel in DRAWN if panel["type"] in (Shape.NUMBER, Shape.SHARES, Shape.ROWS)]
    assert numbers
    assert all(target["instant"] for panel in numbers for target in panel["targets"])


def test_variables_come_from_labels_and_all_means_all() -> None:
    """Data source, gateway, model, tenant, endpoint; "All" matches series without the label too."""
    variables = {variable["name"]: variable for variable in MADE["templating"]["list"]}
    assert list(variables) == ["datasource", "instance", "model", "tenant", "endpoint", "ttft_bound"]
    assert variables["datasource"]["query"] == "prometheus"
    for name in ("instance", "model", "tenant", "endpoint"):
        assert variables[name]["allValue"] == ".*"
        assert variables[name]["datasource"] == CHOSEN
        assert variables[name]["query"]["query"].endswith(f", {name})")
    bounds = [option["value"] for option in variables["ttft_bound"]["options"]]
    assert bounds == [str(bound) for bound in catalogue.TTFT.buckets]
    assert variables["ttft_bound"]["current"]["value"] in bounds


def test_units_say_what_is_measured() -> None:
    """Seconds, shares, requests and tokens a second, and money by the currency of the series."""
    unit_of = {panel["title"]: panel["fieldConfig"]["defaults"]["unit"] for panel in DRAWN}
    assert unit_of["Time to first token (TTFT)"] == "s"
    assert unit_of["Failed"] == "percentunit"
    assert unit_of["Requests"] == "reqps"
    assert unit_of["Output tokens"] == "count:tok/s"
    assert unit_of["Memory"] == "bytes"
    [cost] = [panel for panel in DRAWN if panel["title"] == "Cost per hour"]
    euros = {"id": "byRegexp", "options": r"/\(EUR\)$/"}
    [found] = [rule for rule in cost["fieldConfig"]["overrides"] if rule["matcher"] == euros]
    assert found["properties"] == [{"id": "unit", "value": "currency:EUR "}]


def test_states_are_words_with_colors() -> None:
    """A number that stands for a state is never shown."""
    for panel in DRAWN:
        if panel["type"] == Shape.STATES:
            [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
            assert mapping["type"] == "value"
            assert all(word["text"] and word["color"] for word in mapping["options"].values())


def test_the_file_is_the_dashboard_and_so_is_the_config_map() -> None:
    """Both carry the same; the sidecar finds the ConfigMap by its label."""
    assert json.loads(dashboard_file()) == MADE
    wrapped = yaml.safe_load(dashboard_config_map("headrace-dashboard", "monitoring"))
    assert (wrapped["apiVersion"], wrapped["kind"]) == ("v1", "ConfigMap")
    assert wrapped["metadata"] == {
        "name": "headrace-dashboard", "namespace": "monitoring", "labels": {"grafana_dashboard": "1"}
    }  # fmt: skip
    assert json.loads(wrapped["data"]["headrace.json"]) == MADE
    assert len(wrapped["data"]["headrace.json"]) < 1_000_000
    assert "namespace" not in yaml.safe_load(dashboard_config_map("d", None))["metadata"]
