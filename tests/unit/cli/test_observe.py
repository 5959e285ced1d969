"""`headrace observe`: what it prints and where it writes."""

import json
import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.observe import app
from headrace.fleet.observe.dashboard.grafana import dashboard_config_map, dashboard_file
from headrace.fleet.observe.rule_file import rule_file

MADE = {"rules": rule_file, "dashboard": dashboard_file}


@pytest.mark.parametrize("command", MADE)
def test_prints_it_without_a_file(command: str) -> None:
    """For a pipe."""
    done = CliRunner().invoke(app, [command])
    assert (done.exit_code, done.stdout) == (0, MADE[command]())


@pytest.mark.parametrize("command", MADE)
def test_a_file_is_replaced_whole(command: str, tmp_path: Path) -> None:
    """What was there is there until all of the other is; others may read it, and nothing else is left."""
    path = tmp_path / "it"
    path.write_text("old")
    path.chmod(0o600)
    before = path.stat().st_ino
    done = CliRunner().invoke(app, [command, "--output", str(path)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert path.read_text() == MADE[command]()
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", MADE)
def test_a_link_stays_a_link(command: str, tmp_path: Path) -> None:
    """What it leads to is replaced."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    assert CliRunner().invoke(app, [command, "-o", str(link)]).exit_code == 0
    assert link.is_symlink()
    assert target.read_text() == MADE[command]()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    """`--output >(...)` and /dev/stdout are no files to replace."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert CliRunner().invoke(app, ["dashboard", "-o", str(pipe)]).exit_code == 0
    reader.join(timeout=60)
    assert pipe.is_fifo()
    assert read == [dashboard_file()]


@pytest.mark.parametrize("command", MADE)
def test_a_folder_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    """Exit code 1, and what to do."""
    done = CliRunner().invoke(app, [command, "-o", str(tmp_path / "none" / "it")])
    assert done.exit_code == 1
    assert f"the folder {tmp_path / 'none'} does not exist" in " ".join(done.stderr.split())


def test_wrong_usage_is_two() -> None:
    """An option that is none."""
    assert CliRunner().invoke(app, ["dashboard", "--jsn"]).exit_code == 2


def test_the_example_of_the_help_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a line to paste, and writes what Grafana imports."""
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["dashboard", "--help"], env={"COLUMNS": "120"}).stdout
    example = next(line for line in shown.splitlines() if "Example: headrace observe" in line)
    words = example.partition("headrace observe ")[2].split()
    assert CliRunner().invoke(app, words).exit_code == 0
    [made] = tmp_path.iterdir()
    assert json.loads(made.read_text())["uid"] == "headrace"


def test_kubernetes_takes_name_and_namespace() -> None:
    """As `observe rules` does."""
    done = CliRunner().invoke(app, ["dashboard", "--kubernetes", "--name", "d", "-n", "monitoring"])
    assert done.stdout == dashboard_config_map("d", "monitoring")
