"""headrace sim engine."""

import socket
from pathlib import Path

import pytest


def test_a_gpu_that_is_not_known_names_those_that_are(run) -> None:
    """A slip of the pen is answered with the catalogue."""
    ran = run("sim", "engine", "--dialect", "vllm", "--gpu", "h1000", "--model", "qwen2.5-7b")
    assert ran.code == 1
    assert "h1000" in ran.err
    assert "h100" in ran.err.replace("h1000", "")


def test_a_model_that_does_not_fit_says_by_how_much(run) -> None:
    """Weights larger than the memory are refused with both numbers and what would help."""
    ran = run("sim", "engine", "--dialect", "vllm", "--gpu", "l4", "--model", "qwen2.5-32b")
    assert ran.code == 1
    assert "61.0 GiB" in ran.err
    assert "--tp" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fault", "explode"), "kinds are"),
        (("--fault", "cut:after_tokens"), "NAME=VALUE"),
        (("--fault", "cut:probability=2"), "probability"),
        (("--answer-tokens", "9:3"), "must rise"),
        (("--answer-tokens", "few"), "32:256"),
    ],
)
def test_a_wrong_option_is_named(run, words: tuple[str, str], said: str) -> None:
    """Faults and lengths that make no sense are wrong usage, with what would make sense."""
    ran = run("sim", "engine", "--dialect", "vllm", "--step-ms", "5", *words)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize("words", [(), ("--load-s", "0.01"), ("--dialect", "sglang", "--bootstrap-port", "0")])
def test_a_port_that_somebody_has_is_said(run, words: tuple[str, ...]) -> None:
    """No number of an error: who has what, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ran = run("sim", "engine", "--dialect", "vllm", "--step-ms", "5", "--port", port, *words)
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1:{port}: another process has that port" in ran.err
    assert "--port" in ran.err
    assert "Errno" not in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engine: vllm\nmodel: m\n", ["hardware is missing", "step is missing"]),
        ("{", ["is not valid YAML"]),
        ("[]", ["is not a mapping"]),
        (
            "engine: a\nmodel: b\nhardware: c\nmeasured_at: d\nstep: {curve: [{rows: 0, step_s: x}], typo: 1}\n",
            ["step.curve.0.rows", "step.curve.0.step_s", "step.typo is not a key of it"],
        ),
    ],
)
def test_a_bad_calibration_file_is_explained(run, tmp_path: Path, text: str, said: list[str]) -> None:
    """Each value that is wrong is named, in words of ours."""
    (tmp_path / "c.yaml").write_text(text)
    ran = run("sim", "engine", "--dialect", "vllm", "--calibration", "c.yaml")
    assert ran.code == 1
    assert [part for part in said if part not in ran.err] == []
    assert "pydantic" not in ran.err
    assert "validation error" not in ran.err
