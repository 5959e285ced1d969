"""headrace sim engine."""

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
