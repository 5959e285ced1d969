"""The alert rules, by Prometheus' own promtool: each fires on what it is for, and stays silent on what is well."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headrace.cli.observe import app
from headrace.fleet.observe.alerts import ALERTS
from headrace.fleet.observe.rule_file import prometheus_rule, rule_file, rule_groups
from headrace.telemetry.catalogue import METRICS, MetricKind

BUDGET = 'level="tenant",name="acme",period="day",currency="USD"'
RATIO = "headrace_routing_ttft_prediction_ratio_bucket"
STEADY = "0+60x120"
"""A counter that grows by one a second."""

FIRING: dict[str, dict[str, str]] = {
    "HeadraceBudgetNearlyUsed": {
        f"headrace_budget_used{{{BUDGET}}}": "85x120", f"headrace_budget{{{BUDGET}}}": "100x120"
    },
    "HeadraceBudgetUsedUp": {f"headrace_budget_used{{{BUDGET}}}": "100x120", f"headrace_budget{{{BUDGET}}}": "100x120"},
    "HeadraceQuotaRefuses": {
        'headrace_quota_refusals_total{level="key",limit="requests_per_min"}': "0+10x120",
        'headrace_requests_total{model="m",outcome="rejected",code="rate_limited"}': "0+100x120",
    },
    "HeadraceQueueOld": {'headrace_queue_oldest_seconds{model="m",class="interactive"}': "31x120"},
    "HeadraceQueueRefuses": {'headrace_queue_refusals_total{model="m",bound="requests"}': STEADY},
    "HeadraceLedgerLosesRecords": {"headrace_journal_dropped_records_total": "0+1x120"},
    "HeadraceLedgerBehind": {"headrace_ledger_lag_records": "9000+1000x120"},
    "HeadraceRequestLogLosesLines": {"headrace_request_log_dropped_lines_total": "0+1x120"},
    "HeadraceSharedLimitsLost": {"headrace_sharing_lost": "1x120"},
    "HeadraceSharedLimitsFail": {
        "headrace_sharing_failures_total": "0+12x120", "headrace_sharing_exchanges_total": "0+100x120"
    },
    "HeadraceNoEngineReady": {
        'headrace_endpoint_state{endpoint="p/0",state="ready"}': "0x120",
        'headrace_endpoint_state{endpoint="p/0",state="ejected"}': "0x120",
    },
    "HeadraceEngineOut": {
        'headrace_endpoint_state{endpoint="p/0",state="ejected"}': "1x120",
        'headrace_endpoint_state{endpoint="p/1",state="ready"}': "1x120",
    },
    "HeadraceReplicaCrashLoop": {'headrace_replica_phase{replica="p/0",phase="crash-loop"}': "1x120"},
    "HeadraceGatewayRestarts": {"headrace_gateway_restarts_total": "0+1x120"},
    "HeadraceRequestsFail": {
        'headrace_requests_total{model="m",outcome="failed",code="connect_failed"}': "0+3x120",
        'headrace_requests_total{model="m",outcome="completed",code=""}': "0+97x120",
    },
    "HeadraceStreamsBreak": {'headrace_unresumed_streams_total{model="m",reason="tools"}': "0+1x120"},
    "HeadraceIdentityKeysOld": {'headrace_identity_keys_time_seconds{issuer="i"}': "1x3000"},
    "HeadracePredictionsOff": {
        f'{RATIO}{{pool="p",le="2.0"}}': "0+1x120",
        f'{RATIO}{{pool="p",le="4.0"}}': "0+3x120",
        f'{RATIO}{{pool="p",le="10.0"}}': "0+9x120",
        f'{RATIO}{{pool="p",le="+Inf"}}': "0+10x120",
    },
    "HeadraceCacheEmptied": {'headrace_kv_events_emptied_total{endpoint="p/0",cause="restarted"}': "0+0.1x120"},
    "HeadraceHandoversFail": {
        'headrace_handover_fallbacks_total{model="m",reason="prefill_late"}': "0+1x120",
        'headrace_handover_fallbacks_total{model="m",reason="decode_lost"}': "0+1x120",
        'headrace_handovers_total{model="m",end="completed"}': "0+8x120",
        'headrace_handovers_total{model="m",end="fell-back"}': "0+2x120",
    },
    "HeadraceEnginesDoNotFit": {
        'headrace_handover_pairs{model="m",state="kv_layout_mismatch"}': "2x120",
        'headrace_handover_pairs{model="m",state="fits"}': "0x120",
        'headrace_handover_pairs{model="m",state="not_measured"}': "0x120",
        'headrace_handover_pairs{model="n",state="kv_layout_mismatch"}': "1x120",
        'headrace_handover_pairs{model="n",state="not_measured"}': "1x120",
    },
    "HeadraceKvEventsMissed": {'headrace_kv_events_messages_total{endpoint="p/0",result="missed"}': "0+1x120"},
}  # fmt: skip
"""By alert: series a minute apart, of an instance that has this trouble and no other."""

WELL = {
    f"headrace_budget_used{{{BUDGET}}}": "79x120",
    f"headrace_budget{{{BUDGET}}}": "100x120",
    'headrace_budget_used{level="key",name="free",period="day",currency="USD"}': "5x120",
    'headrace_budget{level="key",name="free",period="day",currency="USD"}': "0x120",
    'headrace_quota_refusals_total{level="key",limit="requests_per_min"}': "0+1x120",
    'headrace_requests_total{model="m",outcome="completed",code=""}': "0+100x120",
    'headrace_requests_total{model="m",outcome="failed",code="connect_failed"}': "0+1x120",
    'headrace_queue_oldest_seconds{model="m",class="offline"}': "900x120",
    'headrace_queue_oldest_seconds{model="m",class="interactive"}': "2x120",
    'headrace_queue_refusals_total{model="m",bound="requests"}': "7x120",
    "headrace_journal_dropped_records_total": "4x120",
    "headrace_request_log_dropped_lines_total": "4x120",
    "headrace_ledger_lag_records": "20000-100x120",
    "headrace_sharing_lost": "0x120",
    "headrace_sharing_failures_total": "0+1x120",
    "headrace_sharing_exchanges_total": "0+100x120",
    'headrace_endpoint_state{endpoint="p/0",state="ready"}': "1x120",
    'headrace_endpoint_state{endpoint="p/0",state="ejected"}': "0x120",
    'headrace_replica_phase{replica="p/0",phase="crash-loop"}': "0x120",
    "headrace_gateway_restarts_total": "3x120",
    'headrace_unresumed_streams_total{model="m",reason="tools"}': "9x120",
    'headrace_identity_keys_time_seconds{issuer="i"}': "0+60x120",
    'headrace_handover_fallbacks_total{model="m",reason="prefill_late"}': "0+1x120",
    'headrace_handovers_total{model="m",end="completed"}': "0+19x120",
    'headrace_handovers_total{model="m",end="fell-back"}': "0+1x120",
    f'{RATIO}{{pool="p",le="2.0"}}': "0+9x120",
    f'{RATIO}{{pool="p",le="+Inf"}}': "0+10x120",
    'headrace_kv_events_emptied_total{endpoint="p/0",cause="restarted"}': "5x120",
    'headrace_kv_events_messages_total{endpoint="p/0",result="missed"}': "5x120",
    'headrace_kv_events_messages_total{endpoint="p/0",result="read"}': STEADY,
}
"""An instance with nothing wrong, close to every bound."""


def labels_of(series: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', series))


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return found


def test_every_alert_has_its_trouble() -> None:
    """No rule goes untested."""
    assert list(FIRING) == [alert.name for alert in ALERTS]


def test_rules_speak_of_metrics_that_exist() -> None:
    """Names and labels in expressions are those of the catalogue."""
    known = {metric.name: metric for metric in METRICS}
    known |= {f"{metric.name}_bucket": metric for metric in METRICS if metric.kind is MetricKind.HISTOGRAM}
    for alert in ALERTS:
        names = re.findall(r"headrace_\w+", alert.expr)
        assert names, alert.name
        used = {label for name in names for label in known[name].labels} | {"le"}
        by = re.findall(r"(?:by|on) \(([^)]*)\)", alert.expr)
        matched = re.findall(r"(\w+)[!=]~?\"", alert.expr)
        told = re.findall(r"\$labels\.(\w+)", alert.summary + alert.action)
        assert {word.strip() for words in by for word in words.split(",")} - {""} <= used, alert.name
        assert {*matched, *told} <= used, alert.name


def test_promtool_accepts_the_file(tmp_path: Path, promtool: str) -> None:
    """The rules are what Prometheus reads, for Kubernetes too."""
    path = tmp_path / "alerts.yaml"
    assert CliRunner().invoke(app, ["rules", "--output", str(path)]).exit_code == 0
    assert path.read_text() == rule_file()
    checked = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout
    wrapped = yaml.safe_load(prometheus_rule("headrace", "monitoring"))
    assert (wrapped["kind"], wrapped["spec"]) == ("PrometheusRule", rule_groups())


def test_each_alert_fires_on_its_trouble_and_on_nothing_else(tmp_path: Path, promtool: str) -> None:
    """promtool runs the rules over an instance with each trouble, and over one that is well."""
    (tmp_path / "alerts.yaml").write_text(rule_file())
    tests = [_expecting(alert.name, FIRING[alert.name]) for alert in ALERTS]
    silent = [{"eval_time": "2h", "alertname": alert.name, "exp_alerts": []} for alert in ALERTS]
    tests.append({"interval": "1m", "input_series": _series(WELL), "alert_rule_test": silent})
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "5m", "tests": tests}))
    run = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


def _series(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": series, "values": values} for series, values in given.items()]


def _expecting(name: str, given: dict[str, str]) -> dict[str, Any]:
    """Whether it fires is asked of ALERTS, Prometheus' own series, as texts may change."""
    at = "26h" if name == "HeadraceIdentityKeysOld" else "90m"
    others = [alert.name for alert in ALERTS if alert.name != name]
    expr = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > 0'
    found = {"expr": f"({expr}) * 0 + 1", "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}
    wrong = {"expr": f'count(ALERTS{{alertname=~"{"|".join(others)}"}})', "eval_time": at, "exp_samples": []}
    return {"interval": "1m", "input_series": _series(given), "promql_expr_test": [found, wrong]}
