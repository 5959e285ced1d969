"""The table of verbs, and how failures are shown."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace.cli.main import VERBS, load_verb, main
from headrace.domain.operator_error import OperatorError

PRESENT = [name for name, verb in VERBS.items() if find_spec(verb.target.partition(":")[0]) is not None]


def test_help_lists_every_verb_with_its_line(run) -> None:
    """headrace --help is a table of contents."""
    ran = run("--help")
    assert ran.code == 0
    for name, verb in VERBS.items():
        assert name in ran.out
        assert verb.line in ran.out


def test_help_imports_no_verb() -> None:
    """The help and shell completion stay fast, since no verb's libraries are loaded for them."""
    program = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'pydantic', 'httpx', 'sqlalchemy', 'uvloop', 'starlette', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_has_a_help_with_an_example(run, name: str) -> None:
    """headrace VERB --help explains the verb and shows how to write it."""
    subcommands = getattr(load_verb(name), "commands", {})
    for words in ((name,), *((name, subcommand) for subcommand in subcommands)):
        ran = run(*words, "--help")
        assert ran.code == 0, ran.err
        assert "Example" in ran.out, words


@pytest.mark.parametrize("name", PRESENT)
def test_every_option_is_explained(name: str) -> None:
    """No option or argument of any verb is without a sentence."""
    command = load_verb(name)
    commands = [command, *getattr(command, "commands", {}).values()]
    silent = [
        (part.name, parameter.name)
        for part in commands
        for parameter in part.params
        if not getattr(parameter, "help", "") and parameter.name != "help"
    ]
    assert silent == []


def test_wrong_usage_exits_with_2(run) -> None:
    """A verb or option that does not exist is wrong usage, with the nearest verb named."""
    ran = run("statsu")
    assert ran.code == 2
    assert "status" in ran.err
    assert run("version", "--nonsense").code == 2
    assert run("up", "--nonsense").code == 2 or "up" not in PRESENT


def test_the_version_option(run) -> None:
    """headrace --version is for scripts."""
    assert run("--version").out.startswith("headrace ")


def test_completion_offers_verbs_and_their_options() -> None:
    """The shell completes verbs, and the options of the verb that is being written."""
    environ = {
        **os.environ,
        "_HEADRACE_COMPLETE": "complete_bash",
        "COMP_WORDS": "headrace check --",
        "COMP_CWORD": "2",
    }
    command = [sys.executable, "-m", "headrace.cli.main"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert {"--config", "--json"} <= set(done.stdout.split())
    environ |= {"COMP_WORDS": "headrace ch", "COMP_CWORD": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) == {"check", "chat"}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command whose work fails with a given exception."""

    def run_failing(error: Exception) -> tuple[object, str]:
        def fail(_: str) -> None:
            raise error

        monkeypatch.setattr("headrace.cli.main.load_verb", fail)
        with pytest.raises(SystemExit) as left:
            main(["version"])
        return left.value.code, capsys.readouterr().err

    return run_failing


def test_an_expected_failure_is_a_message_without_a_traceback(failing) -> None:
    """What an operator can mend is said in a sentence, with what to do."""
    code, said = failing(OperatorError("the port 7070 is taken", hint="Stop what uses it."))
    assert (code, said) == (1, "error: the port 7070 is taken\nStop what uses it.\n")


def test_an_unexpected_failure_says_how_to_report_it(failing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug shows no traceback unless HEADRACE_DEBUG asks for it."""
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    code, said = failing(RuntimeError("boom"))
    assert code == 1
    assert "RuntimeError: boom" in said
    assert "HEADRACE_DEBUG=1" in said
    assert "Traceback" not in said
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    assert "Traceback" in failing(RuntimeError("boom"))[1]


@pytest.mark.parametrize("verb", ["check", "up", "render", "engine"])
def test_a_value_that_is_none_is_wrong_usage(run, verb: str) -> None:
    """`--set foo` exits with 2 like every other slip on the command line."""
    Path("headrace.yaml").write_text(
        "version: 1\nmodels: {m: {}}\npools: {p: {model: m, engine: openai, endpoints: ['http://127.0.0.1:9']}}\n"
    )
    words = {"render": ["render", "compose"], "engine": ["engine", "launch"]}.get(verb, [verb])
    for text in ("foo", "=1", "pools.p.port={"):
        ran = run(*words, "--set", text)
        assert (ran.code, ran.out) == (2, "")
        assert f"--set {text}" in ran.err
