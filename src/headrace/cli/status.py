"""`headrace status`: gateway, pools and replicas, and what each is doing."""

import time
from typing import Annotated

import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import console, emit, emit_line
from headrace.cli.status_view import status_view
from headrace.settings import load_settings

app = verb_app()
REFRESH_S = 1.0

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second until Ctrl-C.")]


@app.command(epilog="Example: headrace status --watch")
def status(is_watching: WatchOption = False, as_json: JsonOption = False) -> None:
    """Show gateway, pools and replicas, and what each is doing."""
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:
        if not is_watching:
            found = client.status()
            emit("status", found, as_json=as_json, human=lambda: status_view(found))
            return
        try:
            if as_json:
                while True:
                    emit_line("status", client.status())
                    time.sleep(REFRESH_S)
            from rich.live import Live

            with Live(console=console(), auto_refresh=False, screen=False) as live:
                while True:
                    live.update(status_view(client.status()), refresh=True)
                    time.sleep(REFRESH_S)
        except KeyboardInterrupt:
            return
