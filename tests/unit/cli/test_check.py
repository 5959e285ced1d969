"""headrace check."""

import json
from pathlib import Path

GOOD = "version: 1\nmodels: {m: {}}\npools: {p: {model: m, engine: vllm, endpoints: ['http://127.0.0.1:1']}}\n"


def test_a_sound_file_exits_with_0(run, tmp_path: Path) -> None:
    """Without a file named, ./headrace.yaml is checked."""
    (tmp_path / "headrace.yaml").write_text(GOOD)
    ran = run("check")
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'headrace.yaml'}: nothing to complain about\n")


def test_without_any_file_the_built_in_declaration_is_checked(run) -> None:
    """What `headrace up` would use is what is checked."""
    assert "built-in" in run("check").out


def test_problems_exit_with_3_and_name_their_line(run, tmp_path: Path) -> None:
    """A build can tell a broken declaration from a failed command."""
    (tmp_path / "x.yaml").write_text(GOOD + "gatway: {}\n")
    ran = run("check", "--config", "x.yaml")
    assert ran.code == 3
    assert ran.out.splitlines()[0] == "x.yaml:4:1: error: gatway: there is no such key"
    assert run("check", "-c", "nowhere.yaml").code == 3


def test_warnings_alone_exit_with_0(run, tmp_path: Path) -> None:
    """Doubts are said but stop nothing."""
    (tmp_path / "x.yaml").write_text(GOOD + "gateway: {listen: '0.0.0.0:7070'}\n")
    ran = run("check", "-c", "x.yaml")
    assert ran.code == 0
    assert "warning: gateway.listen" in ran.out
    assert ran.out.endswith("x.yaml: 0 errors, 1 warning\n")


def test_elsewhere_does_not_need_the_secrets(run, tmp_path: Path) -> None:
    """A pipeline checks a declaration without holding its secrets."""
    (tmp_path / "x.yaml").write_text(GOOD.replace("]}}", "], credentials: {bearer: '${env:HR_NOT_SET}'}}}"))
    assert run("check", "-c", "x.yaml").code == 3
    assert run("check", "-c", "x.yaml", "--elsewhere").code == 0


def test_json_lists_the_problems(run, tmp_path: Path) -> None:
    """Programs get each problem's place and text."""
    (tmp_path / "x.yaml").write_text(GOOD + "gatway: {}\n")
    ran = run("check", "-c", "x.yaml", "--json")
    told = json.loads(ran.out)
    assert ran.code == 3
    assert told["schema"] == "headrace/check/v1"
    assert (told["data"]["is_valid"], told["data"]["errors"], told["data"]["warnings"]) == (False, 1, 0)
    (problem,) = told["data"]["problems"]
    assert (problem["line"], problem["key"], problem["severity"]) == (4, "gatway", "error")
