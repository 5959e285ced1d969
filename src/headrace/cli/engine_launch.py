"""`headrace engine launch`: how each pool's engine would be started, without starting anything."""

import os
import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.cli.options import ConfigOption, JsonOption, SetOption
from headrace.cli.output import emit
from headrace.declaration.load import find_declaration, load_declaration
from headrace.declaration.shape import is_secret_name
from headrace.domain.operator_error import OperatorError
from headrace.engines.declared import lint_engines
from headrace.fleet.deploy.launch_preview import LaunchPreview, preview_launches
from headrace.settings import load_settings

PoolOption = Annotated[
    str | None, typer.Option("--pool", "-p", metavar="POOL", help="Only this pool; default: all that headrace runs.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    """How one pool's first replica would be started."""

    pool: str
    engine: str
    argv: tuple[str, ...]
    env: dict[str, str]
    """Added to headrace's own; secrets are hidden."""
    files: dict[str, str]
    """Text of each file that the command names, by its path."""
    notes: tuple[str, ...]
    """What a declared value became for this engine, and why."""
    port_is_chosen: bool
    """No port is declared: another one than shown is chosen at the start."""


def launch(
    config: ConfigOption = None, pool: PoolOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Print how each pool's engine would be started, without starting anything.

    One flag a line, with the environment and the files that it adds, and what declared values became. Nothing is
    fetched: a model that is not here yet is shown where it will be.
    """
    path = find_declaration(config, environ=os.environ)
    loaded = load_declaration(
        path, environ=os.environ, is_elsewhere=True, overrides=overrides or (), checks=lint_engines
    )
    previews = preview_launches(loaded.declaration, load_settings(), pool=pool)
    if not previews:
        raise OperatorError("no pool here is run by headrace: all have endpoints")
    shown = [_line_of(preview) for preview in previews]
    emit("engine-launch", shown, as_json=as_json, human=lambda: "\n\n".join(map(launch_text, previews)))


def launch_text(preview: LaunchPreview) -> str:
    """Write a launch for people and shells: comments, variables, the command with one flag a line, files."""
    launch = preview.launch
    lines = [f"# pool {preview.pool}: {launch.description}"]
    lines += [f"# {note}" for note in launch.notes]
    if preview.port_is_chosen:
        lines.append("# the port is chosen at the start, as the pool declares none")
    lines += [f"{name}={shlex.quote(value)} \\" for name, value in _shown_env(preview).items()]
    lines.append(" \\\n".join(_command_lines(launch.argv)))
    for path, text in launch.files.items():
        lines += [f"# {path}:", *(f"#   {line}" for line in text.splitlines())]
    return "\n".join(lines)


def _command_lines(argv: tuple[str, ...]) -> list[str]:
    """Break before each long flag, and keep its values beside it."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [("  " if number else "") + " ".join(line) for number, line in enumerate(lines)]


def _shown_env(preview: LaunchPreview) -> dict[str, str]:
    return {name: "(hidden)" if is_secret_name(name) else value for name, value in sorted(preview.launch.env.items())}


def _line_of(preview: LaunchPreview) -> LaunchLine:
    launch = preview.launch
    return LaunchLine(
        pool=preview.pool,
        engine=preview.engine,
        argv=launch.argv,
        env=_shown_env(preview),
        files={str(path): text for path, text in launch.files.items()},
        notes=launch.notes,
        port_is_chosen=preview.port_is_chosen,
    )
