"""Expressions of the dashboard as Prometheus' own promtool sees them: parsed, and evaluated over given series."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.fleet.observe.dashboard.rows import ROWS

CHOICES = {
    "$__rate_interval": "5m", "$__range": "10m", "$ttft_bound": "2.0",
    "$instance": ".*", "$model": ".*", "$tenant": ".*", "$endpoint": ".*",
}  # fmt: skip
"""What Grafana puts in where nothing is chosen."""
AT = "10m"
"""When expressions are evaluated; series need values until then."""


def all_queries() -> list[tuple[str, str]]:
    """Title and filled expression of every query, top to bottom."""
    return [
        (f"{row.title} / {panel.title}", filled(query.expr))
        for row in ROWS
        for panel in row.panels
        for query in panel.queries
    ]


def filled(expr: str) -> str:
    """Put the choices in."""
    for variable, value in CHOICES.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, expr
    return expr


def find_promtool() -> str:
    """Return the program, or skip the test."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return found


def is_near(expr: str, value: float) -> str:
    """An expression that gives something where every value of `expr` is `value`."""
    return f"count(abs(({expr}) - {value!r}) < 1e-6) == count({expr})"


def wrong_answers(
    folder: Path, series: dict[str, str], *, told: Iterable[str] = (), silent: Iterable[str] = ()
) -> list[str]:
    """Evaluate expressions over series (name with labels: values a minute apart).

    Returns those of `told` that give nothing, those of `silent` that give something, and what could not be evaluated.
    """
    expected = [{"labels": "{}", "value": 1}]
    tests: list[dict[str, Any]] = [
        {"expr": f"count(({expr})) * 0 + 1", "eval_time": AT, "exp_samples": samples}
        for expressions, samples in ((told, expected), (silent, []))
        for expr in expressions
    ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    content = {"tests": [{"interval": "1m", "input_series": given, "promql_expr_test": tests}]}
    path = folder / "expressions.yaml"
    path.write_text(yaml.safe_dump(content))
    command = [find_promtool(), "test", "rules", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = run.stdout + run.stderr
    wrong = re.findall(r'expr: "(.*)", time', said)
    return wrong or ([] if run.returncode == 0 else [said])
