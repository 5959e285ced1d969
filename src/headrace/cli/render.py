"""`headrace render`: the declaration written for Docker, compose, systemd or Kubernetes."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import ConfigOption, JsonOption, SetOption, verb_app
from headrace.cli.output import EXIT_FAILED, EXIT_PROBLEMS, EXIT_USAGE, emit, fail, show_error
from headrace.declaration.load import find_declaration
from headrace.fleet.deploy.render.core.model import Rendered
from headrace.fleet.deploy.render.folder import FileChange, PlannedFile, iter_diff, plan_folder, write_folder
from headrace.fleet.deploy.render.request import make_request
from headrace.fleet.deploy.render.targets import Target, joined_text, render

app = verb_app()

TargetArgument = Annotated[Target, typer.Argument(help="What to write for.", show_default=False)]
SplitOption = Annotated[
    Path | None,
    typer.Option("--split", metavar="DIR", help="Write one file for each object into this folder, not to stdout."),
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="In place of deployment.namespace.")
]
PoolOption = Annotated[
    str | None, typer.Option("--pool", "-p", metavar="POOL", help="Only the engines of this pool, without the gateway.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="With --split: say what would change, write nothing.")]
DiffOption = Annotated[
    bool,
    typer.Option("--diff", help="With --split: show the differences, write nothing; exits with 3 if there are any."),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="With --split: replace files that somebody else has made or edited.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One rendered file."""

    path: str
    change: str | None
    """With --split, what becomes of it there."""
    text: str | None
    """None: no longer rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderReport:
    """What `--json` prints."""

    target: str
    files: tuple[FileRow, ...]
    notes: tuple[str, ...]


@app.command(epilog="Example: headrace render kubernetes --namespace llm --split deploy")
def render_command(
    target: TargetArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    namespace: NamespaceOption = None,
    pool: PoolOption = None,
    split: SplitOption = None,
    is_dry_run: DryRunOption = False,
    has_diff: DiffOption = False,
    is_forced: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the declaration for docker, compose, systemd or kubernetes: to stdout, or into a folder.

    Nothing is started and nothing fetched. Images are pinned, secrets are references, and the same declaration gives
    the same bytes. What cannot be rendered is an error that names the key.
    """
    if split is None and (is_dry_run or has_diff or is_forced):
        fail("--dry-run, --diff and --force are for --split DIR", code=EXIT_USAGE)
    path = find_declaration(config, environ=os.environ)
    request, warnings = make_request(
        path, environ=os.environ, overrides=overrides or (), namespace=namespace, pool=pool
    )
    rendered = render(target, request)
    for said in (*warnings, *map(str, rendered.notes)):
        typer.echo(said, err=True)
    if rendered.errors:
        show_error(f"nothing is rendered for {target.value}: see above")
        raise typer.Exit(EXIT_FAILED)
    if split is None:
        _print(target, rendered, as_json=as_json)
    else:
        planned = plan_folder(split, rendered.files)
        if not is_dry_run and not has_diff:
            write_folder(split, planned, is_forced=is_forced)
        _report(target, split, rendered, planned, has_diff=has_diff, as_json=as_json)


def _print(target: Target, rendered: Rendered, *, as_json: bool) -> None:
    if not as_json:
        sys.stdout.write(joined_text(target, rendered))
        return
    files = tuple(FileRow(path=file.path, change=None, text=file.text) for file in rendered.files)
    report = RenderReport(target=target.value, files=files, notes=tuple(map(str, rendered.notes)))
    emit("render", report, as_json=True)


def _report(
    target: Target, folder: Path, rendered: Rendered, planned: list[PlannedFile], *, has_diff: bool, as_json: bool
) -> None:
    changed = [one for one in planned if one.change is not FileChange.UNCHANGED]
    rows = tuple(
        FileRow(path=one.path, change=one.change.value, text=one.after.text if one.after else None) for one in planned
    )
    report = RenderReport(target=target.value, files=rows, notes=tuple(map(str, rendered.notes)))
    lines = [
        f"{one.change.value:10}{folder / one.path}{'  (not as headrace wrote it)' * one.is_foreign}" for one in planned
    ]
    text = "".join(iter_diff(planned)).removesuffix("\n") if has_diff else "\n".join(lines)
    if as_json or text:
        emit("render", report, as_json=as_json, human=text)
    if has_diff and changed:
        raise typer.Exit(EXIT_PROBLEMS)
