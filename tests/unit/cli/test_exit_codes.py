"""One rule for all verbs: a name that there is nothing of is wrong usage, exit code 2, and the message repeats it."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.drill.test_route_explain import UNKNOWN
from tests.unit.cli.conftest import Run

from headrace.cli.main import VERBS, load_verb

DECLARATION = """\
version: 1
models: {small: {source: "file:headrace.yaml"}}
pools: {chat: {model: small}}
tenants: {team-a: {projects: {web: {}}}}
"""

NAMING = frozenset({"TENANT", "PROJECT", "MODEL", "KEY_ID", "NAME", "POOL", "POOL/N", "ENGINE", "GPU", "SOURCE"})
"""What options and arguments call a value that must be the name of something."""

WRONG = """\
schema nope
render docker --namespace Nope_NS
render docker --pool nope
logs --source nope
engine launch --pool nope
engine verify nope
engine show nope
engine caps --engine nope --model acme/chat --gpu h100
engine caps --engine vllm --model 'a nope' --gpu h100
engine caps --engine vllm --model acme/chat --gpu h100 --engine-built-on nope
engine caps --engine vllm --model acme/chat --gpu nope
tenants show nope
tenants create .nope
tenants change nope --set weight=2
tenants suspend nope
tenants suspend team-a --project nope
tenants resume nope
tenants resume team-a --project nope
tenants delete nope
keys create --tenant nope
keys create --tenant team-a --project nope
keys create --tenant team-a --model nope
keys list --tenant nope
keys change nope --name x
keys change KEY --model nope
keys change KEY --project nope
keys suspend nope
keys resume nope
keys revoke nope
audit --tenant nope
usage --tenant nope
usage --project nope
usage --model nope
usage --key nope
"""

ASKED = {("chat", "--model"), ("budget", "--project"), ("budget", "--key")}
"""Answered by the running gateway, or by the same code as `quota`; the others that ask an instance are in UNKNOWN."""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from leaves(below, f"{name} {word}")


def all_verbs() -> list[tuple[str, Any]]:
    return [leaf for name in VERBS for leaf in leaves(load_verb(name), name)]


@pytest.fixture
def declared(run: Run, tmp_path: Path) -> Run:
    """A folder with a declaration; `run` is in it."""
    (tmp_path / "headrace.yaml").write_text(DECLARATION)
    return run


def test_every_unknown_name_is_wrong_usage(declared: Run) -> None:
    """Whatever the verb, the command exits with 2 and says the name."""
    made = declared("keys", "create", "--tenant", "team-a")
    key_id = made.out.rpartition("id ")[2].strip(" .\n")
    for line in WRONG.splitlines():
        ran = declared(*shlex.split(line.replace("KEY", key_id)))
        assert (ran.code, "nope" in ran.err.lower()) == (2, True), (line, ran)


def test_no_verb_with_a_name_is_left_out() -> None:
    """Each option and argument that names something is in the lists of this test."""
    lines = [*WRONG.splitlines(), *(" ".join(words) for words in UNKNOWN)]
    for name, command in all_verbs():
        for parameter in command.params:
            if parameter.metavar not in NAMING:
                continue
            option = parameter.opts[0]
            tried = any(line.startswith(f"{name} ") and (option in line or option[0] != "-") for line in lines)
            assert tried or (name, option) in ASKED, (name, option)


def test_an_option_is_called_alike_in_every_verb() -> None:
    """Who types -c, -t, -m or -k once may type it everywhere."""
    forms: dict[str, set[tuple[str, ...]]] = {}
    for _, command in all_verbs():
        for parameter in command.params:
            long = next((each for each in parameter.opts if each.startswith("--")), None)
            if long is not None:
                forms.setdefault(long, set()).add(tuple(sorted(parameter.opts)))
    forms.pop("--model")  # `sim engine` takes the flags of the engine that it stands for
    assert {long: found for long, found in forms.items() if len(found) > 1} == {}
