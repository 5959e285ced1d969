"""The dashboard as Grafana's file: the classic model, which every version that is maintained imports and provisions.

Source: the types of @grafana/schema 13.2.3 (schema version 42), against which the file was checked when this was
written; names of units by @grafana/data 13.2.3.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from headrace.fleet.observe.dashboard.panel import GRID_COLUMNS, Panel, Query, Row, Shape, Unit
from headrace.fleet.observe.dashboard.rows import ROWS
from headrace.fleet.observe.dashboard.variables import DATASOURCE, variables
from headrace.fleet.observe.yaml_text import object_metadata, yaml_text

SCHEMA_VERSION = 42
UID = "headrace"
"""A file that is imported again replaces what it was."""
HEIGHTS = {Shape.NUMBER: 4}
HEIGHT = 8
CURRENCIES = ("USD", "EUR", "GBP", "CNY", "JPY", "CHF", "INR", "KRW", "CAD", "AUD", "SGD", "BRL")
"""Whose sums are shown with their code; those of another are plain numbers with the code in the legend."""
SIDECAR_LABEL = {"grafana_dashboard": "1"}
"""What the sidecar of Grafana's Helm chart looks for unless told otherwise."""


def dashboard_file() -> str:
    """Return the file's text."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def dashboard_config_map(name: str, namespace: str | None) -> str:
    """The same in a ConfigMap for Grafana's sidecar on Kubernetes."""
    metadata = object_metadata(name, namespace) | {"labels": SIDECAR_LABEL}
    compact = json.dumps(dashboard(), separators=(",", ":"), ensure_ascii=False)
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"headrace.json": compact}}
    return yaml_text("# Made by `headrace observe dashboard`.\n", document)


def dashboard(rows: tuple[Row, ...] = ROWS) -> dict[str, Any]:
    """Return the dashboard in Grafana's classic model."""
    return {
        "id": None,
        "uid": UID,
        "title": "headrace",
        "description": "LLM inference behind headrace, top to bottom: is it fine, latency, load; then, to be opened, "
        "tenants, cache and routing, disaggregation, resilience, the gateway itself. Made by headrace observe "
        "dashboard.",
        "tags": ["headrace", "llm"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_placed(rows)),
    }


def _placed(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    """Give each row and panel its number and its place: left to right, as many beside each other as fit.

    Panels of a closed row stand within it, at the places that they have when it is opened.
    """
    top, number = 0, 0
    for row in rows:
        number += 1
        head: dict[str, Any] = {
            "id": number, "type": "row", "title": row.title, "collapsed": not row.is_open, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": GRID_COLUMNS, "h": 1},
        }  # fmt: skip
        left, line_top, line_height = 0, top + 1, 0
        placed: list[dict[str, Any]] = []
        for panel in row.panels:
            number += 1
            if left + panel.width > GRID_COLUMNS:
                left, line_top, line_height = 0, line_top + line_height, 0
            height = HEIGHTS.get(panel.shape, HEIGHT)
            place = {"x": left, "y": line_top, "w": panel.width, "h": height}
            placed.append({"id": number, "gridPos": place, **_panel(panel)})
            left, line_height = left + panel.width, max(line_height, height)
        if row.is_open:
            yield from (head, *placed)
            top = line_top + line_height
        else:
            yield head | {"panels": placed}
            top += 1


def _panel(panel: Panel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": panel.shape.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [_target(panel, query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": OPTIONS[panel.shape](panel),
    }
    if panel.shape is Shape.ROWS:
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": dict.fromkeys(UNTOLD, True)}}]
    return made


UNTOLD = ("Time", "Value", "__name__", "alertstate", "job")
"""Columns of the table of alerts that say nothing."""


def _target(panel: Panel, query: Query, ref_id: str) -> dict[str, Any]:
    is_now = panel.shape in {Shape.NUMBER, Shape.SHARES, Shape.ROWS}
    return {
        "refId": ref_id,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "format": "table" if panel.shape is Shape.ROWS else "time_series",
        "editorMode": "code",
        "instant": is_now,
        "range": not is_now,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    unit = "short" if panel.unit is Unit.MONEY else panel.unit.value
    steps = [{"value": None, "color": "green"}]
    steps += [{"value": threshold.at, "color": threshold.color.value} for threshold in panel.thresholds]
    is_judged = bool(panel.thresholds) and panel.shape in {Shape.NUMBER, Shape.SHARES}
    is_fixed = panel.shape is Shape.NUMBER and not panel.thresholds
    color = {"mode": "thresholds"} if is_judged else {"mode": "palette-classic"}
    defaults: dict[str, Any] = {
        "unit": unit,
        "color": {"mode": "fixed", "fixedColor": "text"} if is_fixed else color,
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": _mappings(panel),
        "custom": _custom(panel),
    }
    if panel.shape in {Shape.LINES, Shape.SHARES}:
        defaults["min"] = 0
    if panel.top is not None and panel.shape is not Shape.NUMBER:
        defaults["max"] = panel.top
    if panel.empty_text is not None:
        defaults["noValue"] = panel.empty_text
    return defaults


def _mappings(panel: Panel) -> list[dict[str, Any]]:
    if not panel.words:
        return []
    options = {
        str(word.number): {"text": word.text, "color": word.color.value, "index": index}
        for index, word in enumerate(panel.words)
    }
    return [{"type": "value", "options": options}]


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.shape is Shape.STATES:
        return {"fillOpacity": 80, "lineWidth": 0}
    if panel.shape is not Shape.LINES:
        return {}
    return {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 25 if panel.is_stacked else 5,
        "showPoints": "auto",
        "pointSize": 4,
        "spanNulls": False,
        "axisPlacement": "auto",
        "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
    }


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    overrides = [
        _override("byName", legend, "color", {"mode": "fixed", "fixedColor": color.value})
        for legend, color in panel.colors
    ]
    if panel.unit is Unit.MONEY:
        overrides += [_override("byRegexp", f"/\\({code}\\)$/", "unit", f"currency:{code} ") for code in CURRENCIES]
    return overrides


def _override(matcher: str, matched: str, name: str, value: object) -> dict[str, Any]:
    return {"matcher": {"id": matcher, "options": matched}, "properties": [{"id": name, "value": value}]}


def _lines_options(panel: Panel) -> dict[str, Any]:
    legend = FIGURES_BESIDE if panel.has_figures else NAMES_BELOW
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


NAMES_BELOW: dict[str, Any] = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
FIGURES_BESIDE: dict[str, Any] = {
    "showLegend": True,
    "displayMode": "table",
    "placement": "right",
    "calcs": ["lastNotNull", "max"],
}
REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def _number_options(panel: Panel) -> dict[str, Any]:
    return {
        "reduceOptions": REDUCED,
        "orientation": "auto",
        "textMode": "value" if len(panel.queries) == 1 and "{{" not in panel.queries[0].legend else "value_and_name",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def _shares_options(_panel: Panel) -> dict[str, Any]:
    return {
        "reduceOptions": REDUCED,
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 40,
        "legend": NAMES_BELOW | {"showLegend": False},
    }


def _states_options(_panel: Panel) -> dict[str, Any]:
    return {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.9,
        "legend": NAMES_BELOW,
        "tooltip": {"mode": "single", "sort": "none"},
    }


def _rows_options(_panel: Panel) -> dict[str, Any]:
    return {
        "showHeader": True,
        "cellHeight": "sm",
        "frameIndex": 0,
        "sortBy": [{"displayName": "severity", "desc": False}],
    }


OPTIONS: dict[Shape, Callable[[Panel], dict[str, Any]]] = {
    Shape.LINES: _lines_options,
    Shape.NUMBER: _number_options,
    Shape.SHARES: _shares_options,
    Shape.STATES: _states_options,
    Shape.ROWS: _rows_options,
}
"""What Grafana calls `options`, by kind of panel."""
