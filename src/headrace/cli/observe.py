"""`headrace observe`: what an operator's monitoring is given."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import verb_app
from headrace.cli.output import fail
from headrace.fleet.observe.dashboard.grafana import dashboard_config_map, dashboard_file
from headrace.fleet.observe.rule_file import prometheus_rule, rule_file
from headrace.whole_file import write_whole

app = verb_app()

OutputOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to FILE.")]


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
    _give(prometheus_rule(name, namespace) if kubernetes else rule_file(), output)


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
    _give(dashboard_config_map(name, namespace) if kubernetes else dashboard_file(), output)


def _give(text: str, output: Path | None) -> None:
    """Print it, or write it: a file that something else reads is there whole or as it was."""
    if output is None:
        print(text, end="")
    elif not output.absolute().parent.is_dir():
        fail(f"the folder {output.absolute().parent} does not exist", hint="Make it first, or give another --output.")
    elif output.exists() and not output.is_file():
        # A pipe or a device is written to, never replaced by a file.
        output.write_text(text, encoding="utf-8")
    else:
        write_whole(output.resolve(), text, mode=0o644)
