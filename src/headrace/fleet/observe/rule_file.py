"""The alerts as a rule file of Prometheus: what `rule_files` takes, or the `spec` of a PrometheusRule."""

from collections.abc import Callable, Iterable
from typing import Any

import yaml

from headrace.fleet.observe.alerts import ALERTS, Alert

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
    return _text(rule_groups())


def prometheus_rule(name: str, namespace: str | None) -> str:
    """The same as an object of the Prometheus operator for Kubernetes."""
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": rule_groups(),
    }
    return _text(document)


def _text(document: dict[str, Any]) -> str:
    dump: Callable[..., str] = yaml.safe_dump  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # its stubs
    return HEAD + dump(document, sort_keys=False, width=120, allow_unicode=True)
