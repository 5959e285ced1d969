"""`headrace observe`: what an operator's monitoring is given."""

from typing import Annotated

import typer

from headrace.cli.options import OutputOption, verb_app
from headrace.cli.text_file import give
from headrace.fleet.observe.dashboard.grafana import dashboard_config_map, dashboard_file
from headrace.fleet.observe.rule_file import prometheus_rule, rule_file

app = verb_app()


@app.callback(epilog="Example: headrace observe rules --output headrace-alerts.yaml")
def observe() -> None:
    """Write what an operator's monitoring needs."""


@app.command(epilog="Example: headrace observe rules --kubernetes --namespace monitoring | kubectl apply -f -")
def rules(
    output: OutputOption = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="As a PrometheusRule of the Prometheus operator.")
    ] = False,
    name: Annotated[str, typer.Option(help="Name of the PrometheusRule.")] = "headrace",
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Its namespace.")] = None,
) -> None:
    """Print alert rules for Prometheus: budgets, quotas, queues, ledger, shared limits, engines, gateway, routing.

    What each means is in docs/alerts.md. The bounds are a beginning: change the file.
    """
    give(prometheus_rule(name, namespace) if kubernetes else rule_file(), output)


@app.command(epilog="Example: headrace observe dashboard --output headrace-dashboard.json")
def dashboard(
    output: OutputOption = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="As a ConfigMap that the sidecar of Grafana's Helm chart picks up.")
    ] = False,
    name: Annotated[str, typer.Option(help="Name of the ConfigMap.")] = "headrace-dashboard",
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Its namespace.")] = None,
) -> None:
    """Print a dashboard for Grafana (JSON), to be imported or provisioned: what to look at first is at its top.

    How to get it into Grafana, and what its rows say, is in docs/dashboard.md.
    """
    give(dashboard_config_map(name, namespace) if kubernetes else dashboard_file(), output)
