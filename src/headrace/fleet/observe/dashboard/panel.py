"""What is said of a panel of the dashboard, free of Grafana's JSON."""

from dataclasses import dataclass
from enum import StrEnum

GRID_COLUMNS = 24
"""Grafana's."""


class Shape(StrEnum):
    """How it is drawn; Grafana's names of its panels."""

    LINES = "timeseries"
    NUMBER = "stat"
    """The value now, not the last there ever was: what is gone shows no data."""
    SHARES = "bargauge"
    """Values now, as bars of 0 to 1 or of the largest."""
    STATES = "state-timeline"
    ROWS = "table"


class Unit(StrEnum):
    """Grafana's names of units. `count:X` is a number shortened to K, M and G before X."""

    SECONDS = "s"
    SHARE = "percentunit"
    """0..1, shown as percent."""
    REQUESTS_PER_SECOND = "reqps"
    TOKENS = "count:tok"
    TOKENS_PER_SECOND = "count:tok/s"
    PER_SECOND = "count:/s"
    PER_MINUTE = "count:/min"
    BYTES = "bytes"
    BYTES_PER_SECOND = "binBps"
    COUNT = "short"
    MONEY = "currency"
    """By the currency that the legend names: grafana.py has the list."""
    STATE = "none"
    """A number that stands for a word."""


class Color(StrEnum):
    GREEN = "green"
    YELLOW = "yellow"
    ORANGE = "orange"
    RED = "red"
    BLUE = "blue"
    PURPLE = "purple"
    GRAY = "text"


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str
    """With Prometheus' labels in double braces."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """From `at` on a value has this color; below the first it is green."""

    at: float
    color: Color


@dataclass(frozen=True, slots=True)
class Word:
    """A number that is shown as a word."""

    number: int
    text: str
    color: Color


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    description: str
    """What it says, and what to do where it says something bad; shown when pointed at."""
    queries: tuple[Query, ...]
    unit: Unit
    shape: Shape = Shape.LINES
    width: int = 8
    is_stacked: bool = False
    top: float | None = None
    """Upper end of the axis, where there is a natural one."""
    thresholds: tuple[Threshold, ...] = ()
    words: tuple[Word, ...] = ()
    colors: tuple[tuple[str, Color], ...] = ()
    """Of series by the whole of their legend."""
    has_figures: bool = False
    """Whether last and largest value stand beside each series."""
    empty_text: str | None = None
    """Where nothing is good news; otherwise Grafana says "No data"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]
    is_open: bool
    """Rows that are closed ask Prometheus nothing until somebody opens them."""
