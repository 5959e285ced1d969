"""`headrace logs`: the logs of supervisor, gateway, requests and engines, followed over rotation."""

import time
from typing import Annotated

import typer

from headrace.cli.log_tail import LogLine, LogTail, find_logs
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import console, emit_line
from headrace.declaration.nearest import did_you_mean
from headrace.domain.operator_error import UnknownNameError
from headrace.settings import load_settings

app = verb_app()
POLL_S = 0.25

FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        "-s",
        metavar="SOURCE",
        help="supervisor, gateway, requests or engine-POOL-N; may be repeated. Default: all.",
    ),
]
LinesOption = Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines of each source.")]


@app.command(epilog="Example: headrace logs -f --source requests")
def logs(
    is_following: FollowOption = False,
    source: SourceOption = None,
    lines: LinesOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the logs of engines, gateway and requests."""
    log_dir = load_settings().log_dir
    wanted = set(source or ())
    known = find_logs(log_dir)
    for name in wanted - set(known):
        if not is_following:
            raise UnknownNameError(f"there is no log {name} in {log_dir}", hint=did_you_mean(name, list(known)))
    tails = {name: LogTail(name, path) for name, path in known.items() if not wanted or name in wanted}
    is_single = len(wanted) == 1
    for tail in tails.values():
        for line in tail.last_lines(lines):
            _show(line, is_single=is_single, as_json=as_json)
    try:
        while is_following:
            time.sleep(POLL_S)
            for name, path in find_logs(log_dir).items():
                if name not in tails and (not wanted or name in wanted):
                    tails[name] = LogTail(name, path)
            for tail in tails.values():
                for line in tail.fresh_lines():
                    _show(line, is_single=is_single, as_json=as_json)
    except KeyboardInterrupt:
        return


def _show(line: LogLine, *, is_single: bool, as_json: bool) -> None:
    if as_json:
        emit_line("logs", line)
    else:
        text = line.line if is_single else f"{line.source}  {line.line}"
        console().out(text, highlight=False)
