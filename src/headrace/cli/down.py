"""`headrace down`: stop gateway and engines, and leave nothing behind."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, fail
from headrace.fleet.deploy.leftovers import end_leftovers
from headrace.fleet.deploy.state_files import find_supervisor
from headrace.settings import load_settings

app = verb_app()


@dataclass(frozen=True, slots=True, kw_only=True)
class DownReport:
    """What `headrace down --json` prints."""

    stopped: bool
    """Something ran, and does not run any more."""
    was_running: bool
    """A supervisor ran; without one, what it had left may have been ended."""


POLL_S = 0.1

NowOption = Annotated[bool, typer.Option("--now", help="Do not wait for running requests.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout-s", min=0, help="Give up waiting after so many seconds (the stop itself goes on).")
]


@app.command(epilog="Example: headrace down")
def down(is_hurried: NowOption = False, timeout_s: TimeoutOption = 180.0, as_json: JsonOption = False) -> None:
    """Stop what `headrace up` started.

    The gateway finishes running requests first (gateway.drain_s), then the engines stop (pools.*.stop_s).
    """
    settings = load_settings()
    running = find_supervisor(settings)
    if running is None:
        left = asyncio.run(end_leftovers(settings, is_hurried=is_hurried))
        was_left = left.workers + left.engines > 0
        text = (
            f"no supervisor was running; ended what one had left: {left.engines} engine(s), {left.workers} worker(s)"
            if was_left
            else f"headrace is not running on {settings.state_dir}"
        )
        emit("down", DownReport(stopped=was_left, was_running=False), as_json=as_json, human=text)
        return
    os.kill(running.process.pid, signal.SIGTERM)
    end_mono_s = time.monotonic() + timeout_s
    if is_hurried:
        time.sleep(POLL_S)
        if running.process.is_alive:
            os.kill(running.process.pid, signal.SIGTERM)
    while running.process.is_alive:
        if time.monotonic() >= end_mono_s:
            fail(
                f"pid {running.process.pid} is still stopping after {timeout_s:g} s",
                hint="headrace down --now hurries.",
            )
        time.sleep(POLL_S)
    emit("down", DownReport(stopped=True, was_running=True), as_json=as_json, human="stopped")
