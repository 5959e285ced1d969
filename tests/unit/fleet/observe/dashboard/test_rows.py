"""What the panels ask: metrics that exist, by Prometheus' own promtool, and each with an answer where there is one."""

import itertools
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.harness.promql_checks import all_queries, filled, find_promtool, is_near, wrong_answers

from headrace.domain.endpoint import EndpointState, ReplicaPhase
from headrace.domain.errors import ERRORS, Fault, Outcome
from headrace.fleet.observe.alerts import ALERTS
from headrace.fleet.observe.dashboard import gateway, health, load, tenants
from headrace.fleet.observe.dashboard.panel import Panel, Row, Unit
from headrace.fleet.observe.dashboard.rows import ROWS
from headrace.fleet.observe.dashboard.variables import names
from headrace.telemetry.catalogue import METRICS, MetricKind, MetricSpec

KNOWN = {
    f"{metric.name}{suffix}": (*metric.labels, *(("le",) if suffix == "_bucket" else ()))
    for metric in METRICS
    for suffix in (("_bucket", "_count", "_sum") if metric.kind is MetricKind.HISTOGRAM else ("",))
} | {"ALERTS": ("alertname", "alertstate")}
"""Every series that there can be, with its labels. ALERTS is Prometheus' own."""
VALUES: dict[str, tuple[str, ...]] = {
    "outcome": tuple(Outcome), "code": ("", "saturated", "connect_failed"), "state": tuple(EndpointState),
    "phase": tuple(ReplicaPhase), "kind": ("input", "cached_input", "output", "expected", "cached"),
    "result": ("read", "missed"), "reason": ("gain", "died"),
}  # fmt: skip
"""Of labels whose values expressions name."""
PANELS = [pytest.param(panel, id=f"{row.title}: {panel.title}") for row in ROWS for panel in row.panels]


def panel_of(row: Row, title: str) -> Panel:
    return next(panel for panel in row.panels if panel.title == title)


def expr_of(row: Row, title: str) -> str:
    return filled(panel_of(row, title).queries[0].expr)


@pytest.mark.parametrize("panel", PANELS)
def test_expressions_speak_of_metrics_that_exist(panel: Panel) -> None:
    """Names, labels, groupings, legends and variables are those of the catalogue and of the dashboard."""
    for query in panel.queries:
        selectors = re.findall(r"\b(headrace_\w+|ALERTS)\{([^}]*)\}", query.expr)
        assert [name for name, _ in selectors] == re.findall(r"headrace_\w+|ALERTS", query.expr)
        for name, matchers in selectors:
            asked = re.findall(r'(?:^|,)(\w+)(?:=~|!=|=)"', matchers)
            assert asked, name
            assert set(asked) <= {*KNOWN[name], "instance"}, name
        had = {label for name, _ in selectors for label in KNOWN[name]} | {"instance"}
        grouped = {label for words in re.findall(r"by \(([^)]*)\)", query.expr) for label in words.split(", ")}
        assert grouped <= had
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= grouped
        assert set(re.findall(r"\$(\w+)", query.expr)) <= names() | {"__rate_interval", "__range"}


@pytest.mark.parametrize("panel", PANELS)
def test_panels_can_be_read(panel: Panel) -> None:
    """Each says in sentences what it shows, names every series, and shows money with its currency."""
    assert panel.description.endswith(".")
    assert len(panel.title) < 50
    legends = [query.legend for query in panel.queries]
    assert len(set(legends)) == len(legends)
    assert panel.unit is not Unit.MONEY or all(legend.endswith("({{currency}})") for legend in legends)
    assert bool(panel.words) == (panel.unit is Unit.STATE)


def test_every_metric_is_shown_or_left_out_on_purpose() -> None:
    """A metric that is added comes to the dashboard, or says here why not."""
    shown = {name for _, expr in all_queries() for name in re.findall(r"headrace_\w+", expr)}
    missing = {metric.name for metric in METRICS} - {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    assert missing - {metric.name for metric in METRICS if metric.name in shown} == {
        "headrace_budget_marks_total",  # the budget itself is shown
        "headrace_gateway_process_virtual_memory_bytes",  # says nothing
        "headrace_identity_key_fetches_total",  # their age is shown
        "headrace_pool_held_tokens",  # by endpoint
        "headrace_pool_measured_engines",  # the age of figures is shown
        "headrace_routing_index_blocks",  # in tokens
        "headrace_routing_sampled_picks_total",  # no fault of anybody
        "headrace_sharing_losses_total",  # the state is shown
    }


def test_states_are_all_named() -> None:
    """A state or phase that is added has its word and color, well before ill."""
    assert {state for state, _ in load.STATES} == set(EndpointState)
    assert {phase for phase, _ in load.PHASES} == set(ReplicaPhase)
    assert set(health.PLATFORM_CODES.split("|")) == {
        code.value for code, spec in ERRORS.items() if spec.fault is Fault.PLATFORM
    }


def test_alerts_and_files_named_in_descriptions_exist() -> None:
    """Who follows a hint arrives."""
    root = Path(__file__).resolve().parents[5]
    text = " ".join(panel.description for row in ROWS for panel in row.panels)
    assert set(re.findall(r"Headrace\w+", text)) <= {alert.name for alert in ALERTS}
    assert all((root / page).is_file() for page in re.findall(r"docs/[\w-]+\.md", text))


def test_promtool_accepts_every_expression(tmp_path: Path) -> None:
    """Prometheus parses them all."""
    rules = [{"record": f"panel:{number}", "expr": expr} for number, (_, expr) in enumerate(all_queries())]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = [find_promtool(), "check", "rules", str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_no_expression_is_empty_where_there_is_everything(tmp_path: Path) -> None:
    """Over two gateways that expose every metric of the catalogue, every query gives something and none an error."""
    series = {name: values for metric in METRICS for name, values in _series_of(metric)}
    series['ALERTS{alertname="HeadraceQueueOld",alertstate="firing",severity="warning",model="a"}'] = "1x20"
    expressions = [expr for _, expr in all_queries()]
    assert wrong_answers(tmp_path, series, told=expressions) == []
    assert wrong_answers(tmp_path, {"up": "1x20"}, silent=expressions) == []


def test_shares_are_zero_where_nothing_failed_and_absent_where_nothing_was_asked(tmp_path: Path) -> None:
    """An error share of 0 is good news and not "no data"; without requests there is none."""
    failed, away = expr_of(health.ROW, "Failed"), expr_of(health.ROW, "Turned away")
    well = {'headrace_requests_total{instance="g",model="m",outcome="completed",code=""}': "0+60x20"}
    ill = well | {
        'headrace_requests_total{instance="g",model="m",outcome="failed",code="connect_failed"}': "0+20x20",
        'headrace_requests_total{instance="g",model="m",outcome="evicted",code="queue_expired"}': "0+10x20",
        'headrace_requests_total{instance="g",model="m",outcome="rejected",code="saturated"}': "0+10x20",
        'headrace_requests_total{instance="g",model="n",outcome="rejected",code="rate_limited"}': "0+100x20",
    }
    idle = dict.fromkeys(well, "7x20")
    assert wrong_answers(tmp_path, well, told=[is_near(failed, 0), is_near(away, 0)]) == []
    assert wrong_answers(tmp_path, ill, told=[is_near(failed, 0.1), is_near(away, 0.1)]) == []
    assert wrong_answers(tmp_path, idle, silent=[failed, away]) == []


def test_several_workers_and_gateways_count_once(tmp_path: Path) -> None:
    """An endpoint that three workers see is one; where they disagree the worst is shown; a shared budget is one."""
    state = "headrace_endpoint_state"
    series = {
        f'{state}{{instance="g",endpoint="p/0",state="ready"}}': "3x20",
        f'{state}{{instance="g",endpoint="p/0",state="ejected"}}': "0x20",
        f'{state}{{instance="h",endpoint="p/0",state="ready"}}': "0x20",
        f'{state}{{instance="h",endpoint="p/0",state="ejected"}}': "2x20",
    }
    for instance in "gh":
        labels = f'instance="{instance}",level="tenant",name="acme",period="day",currency="EUR"'
        series |= {f"headrace_budget_used{{{labels}}}": "45x20", f"headrace_budget{{{labels}}}": "50x20"}
        series[f'headrace_in_flight_requests{{instance="{instance}"}}'] = "4x20"
    expected = {
        expr_of(health.ROW, "Engines out"): 1.0,
        expr_of(load.ROW, "Endpoint states"): float([*dict(load.STATES)].index(EndpointState.EJECTED) + 1),
        expr_of(tenants.ROW, "Budgets used"): 0.9,
        expr_of(health.ROW, "Gateways"): 2.0,
        expr_of(health.ROW, "Now"): 8.0,
    }
    assert wrong_answers(tmp_path, series, told=[is_near(expr, value) for expr, value in expected.items()]) == []


def test_moments_are_shown_as_ages(tmp_path: Path) -> None:
    """Unix times of gateways and keys become seconds ago."""
    series = {
        'headrace_gateway_process_start_time_seconds{instance="g"}': "60x20",
        'headrace_identity_keys_time_seconds{instance="g",issuer="i"}': "300x20",
        'headrace_identity_keys_time_seconds{instance="g",issuer="never"}': "0x20",
    }
    ages = {
        expr_of(gateway.ROW, "Up since"): 540.0,
        expr_of(gateway.ROW, "Age of identity providers' keys"): 300.0,
    }
    assert wrong_answers(tmp_path, series, told=[is_near(expr, value) for expr, value in ages.items()]) == []


def _series_of(metric: MetricSpec) -> list[tuple[str, str]]:
    """Every combination of labels, on two gateways."""
    made: list[tuple[str, str]] = []
    values = "3x20" if metric.kind is MetricKind.GAUGE else "0+60x20"
    choices = [VALUES.get(label, ("a", "b")) for label in metric.labels]
    for instance, *chosen in itertools.product(("g", "h"), *choices):
        labels = {"instance": instance, **dict(zip(metric.labels, chosen, strict=True))}
        text = ",".join(f'{label}="{value}"' for label, value in labels.items())
        if metric.kind is not MetricKind.HISTOGRAM:
            made.append((f"{metric.name}{{{text}}}", values))
            continue
        made += [(f"{metric.name}_{part}{{{text}}}", values) for part in ("count", "sum")]
        made += [
            (f'{metric.name}_bucket{{{text},le="{bound}"}}', f"0+{60 if at else 30}x20")
            for at, bound in enumerate((*metric.buckets, "+Inf"))
        ]
    return made
