"""The alerts as a rule file of Prometheus: what `rule_files` takes, or the `spec` of a PrometheusRule."""

from collections.abc import Iterable
from typing import Any

from headrace.fleet.observe.alerts import ALERTS, Alert
from headrace.fleet.observe.yaml_text import object_metadata, yaml_text

HEAD = "# Made by `headrace observe rules`. Bounds are a beginning: docs/alerts.md says what each alert means.\n"


def rule_groups(alerts: Iterable[Alert] = ALERTS) -> dict[str, Any]:
    """Return the groups, in the order in which they first come."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for alert in alerts:
        rule = {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.hold,
            "labels": {"severity": alert.severity.value},
            "annotations": {"summary": alert.summary, "description": alert.action},
        }
        groups.setdefault(alert.group, []).append(rule)
    return {"groups": [{"name": f"headrace-{name}", "rules": rules} for name, rules in groups.items()]}


def rule_file() -> str:
    """Return the file's text."""
    return yaml_text(HEAD, rule_groups())


def prometheus_rule(name: str, namespace: str | None) -> str:
    """The same as an object of the Prometheus operator for Kubernetes."""
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": object_metadata(name, namespace),
        "spec": rule_groups(),
    }
    return yaml_text(HEAD, document)
