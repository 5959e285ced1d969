"""`headrace observe`: what an operator's monitoring is given."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import verb_app
from headrace.fleet.observe.rule_file import prometheus_rule, rule_file

app = verb_app()


@app.callback(epilog="Example: headrace observe rules --output headrace-alerts.yaml")
def observe() -> None:
    """Write what an operator's monitoring needs."""


@app.command(epilog="Example: headrace observe rules --kubernetes --namespace monitoring | kubectl apply -f -")
def rules(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to FILE.")] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="As a PrometheusRule of the Prometheus operator.")
    ] = False,
    name: Annotated[str, typer.Option(help="Name of the PrometheusRule.")] = "headrace",
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Its namespace.")] = None,
) -> None:
    """Print alert rules for Prometheus: budgets, quotas, queues, ledger, shared limits, engines, gateway, routing.

    What each means is in docs/alerts.md. The bounds are a beginning: change the file.
    """
    text = prometheus_rule(name, namespace) if kubernetes else rule_file()
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
