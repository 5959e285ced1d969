"""`headrace render`: to stdout or into a folder, as text or JSON, with the exit codes of every command."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from headrace.cli.main import app

DECLARATION = """\
version: 1
models:
  chat: {source: "hf:acme/chat@0123456789abcdef0123456789abcdef01234567"}
pools:
  chat: {model: chat, engine: vllm, runtime: {env: {HF_TOKEN: "${env:HUB_TOKEN}"}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A declaration with a secret that is not set here."""
    path = tmp_path / "headrace.yaml"
    path.write_text(DECLARATION)
    return path


def _render(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["render", *map(str, words)])


def test_stdout_holds_the_file_and_nothing_else(file: Path) -> None:
    """What is printed can be piped to the tool that reads it; secrets need not be there, and are not shown."""
    done = _render("compose", "--config", file, "--namespace", "llm")
    assert done.exit_code == 0
    project = yaml.safe_load(done.stdout)
    assert project["name"] == "llm"
    assert project["services"]["chat-0"]["environment"]["HF_TOKEN"].startswith("${HUB_TOKEN:?")


def test_a_value_can_be_set(file: Path) -> None:
    """--set renders another engine from the same file."""
    done = _render("compose", "--config", file, "--set", "pools.chat.engine=sglang")
    assert "docker.io/lmsysorg/sglang:v" in done.stdout


def test_json_lists_the_files(file: Path) -> None:
    """Programs get path and text of each file, and the warnings."""
    done = _render("systemd", "--config", file, "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/render/v1"
    paths = [one["path"] for one in document["data"]["files"]]
    assert "etc/systemd/system/headrace-chat-0.service" in paths
    assert document["data"]["notes"][0].startswith("warning: pools.chat.runtime names no program")
    assert "warning: pools.chat.runtime" in done.stderr


def test_a_folder_gets_one_file_for_each_object(file: Path, tmp_path: Path) -> None:
    """--split writes; --dry-run and --diff only say what would change, and --diff exits with 3 if anything would."""
    folder = tmp_path / "out"
    assert "created" in _render("systemd", "-c", file, "--split", folder, "--dry-run").stdout
    assert not folder.exists()
    assert _render("systemd", "-c", file, "--split", folder).exit_code == 0
    assert (folder / "etc/systemd/system/headrace-gateway.service").exists()
    again = _render("systemd", "-c", file, "--split", folder, "--diff")
    assert (again.exit_code, again.stdout) == (0, "")
    changed = _render("systemd", "-c", file, "--split", folder, "--diff", "--set", "pools.chat.stop_s=90")
    assert changed.exit_code == 3
    assert "+TimeoutStopSec=90" in changed.stdout.splitlines()


def test_a_file_of_somebody_else_stays(file: Path, tmp_path: Path) -> None:
    """What headrace has not written is not written over without --force."""
    (tmp_path / "compose.yaml").write_text("mine\n")
    done = _render("compose", "-c", file, "--split", tmp_path)
    assert isinstance(done.exception, Exception)
    assert "compose.yaml" in str(done.exception)
    assert (tmp_path / "compose.yaml").read_text() == "mine\n"
    assert _render("compose", "-c", file, "--split", tmp_path, "--force").exit_code == 0


def test_what_cannot_be_rendered_is_said(file: Path) -> None:
    """An error names the key, nothing is printed on stdout, and the exit code is 1."""
    done = _render("compose", "-c", file, "--set", "pools.chat.container={engine_version: 0.1.0}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pools.chat.container.engine_version" in done.stderr


def test_replicas_that_a_local_start_refuses_are_rendered(file: Path) -> None:
    """`headrace up` does not choose GPUs for several replicas; a rendered deployment does."""
    done = _render("compose", "-c", file, "--set", "pools.chat.replicas=2")
    assert "chat-1:" in done.stdout


@pytest.mark.parametrize("words", [["swarm"], [], ["compose", "--force"], ["compose", "--dry-run"]])
def test_wrong_usage(file: Path, words: list[str]) -> None:
    """A target that does not exist, none at all, and options that need --split."""
    assert _render(*words, "--config", file).exit_code == 2


def test_a_pool_that_does_not_exist_is_named(file: Path) -> None:
    """--pool lists what there is."""
    done = _render("compose", "-c", file, "--pool", "chta")
    assert str(done.exception) == "headrace runs no pool chta\nIt runs: chat."


def test_the_example_of_the_help_works_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It renders the built-in declaration, and `base` and `overlays` lie where the page says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)
    shown = CliRunner().invoke(app, ["render", "--help"], env={"COLUMNS": "120"}).stdout
    example = next(line for line in shown.splitlines() if "Example: headrace render" in line)
    done = _render(*example.partition("headrace render ")[2].split())
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "deploy").iterdir() if path.is_dir()) == ["base", "overlays"]
