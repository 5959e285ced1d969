"""A declaration against what is known of its engines."""

from pathlib import Path

from headrace.declaration.load import load_declaration
from headrace.declaration.problem import Problem, Severity
from headrace.engines.declared import lint_engines

DECLARATION = """\
version: 1
models:
  qwen: {source: "hf:Qwen/Qwen2.5-7B-Instruct@0123456789abcdef0123456789abcdef01234567", context_tokens: 4096}
pools:
  main:
    model: qwen
    engine: ENGINE
    replicas: 1
    runtime: {python: /srv/engine/bin/python}
    extra_args: ARGS
"""


def problems_of(folder: Path, engine: str, arguments: str) -> list[Problem]:
    """What is said of the pool's extra_args."""
    text = DECLARATION.replace("ENGINE", engine).replace("ARGS", arguments)
    path = folder / "headrace.yaml"
    path.write_text(text)
    loaded = load_declaration(path, environ={}, is_elsewhere=True, checks=lint_engines)
    return [problem for problem in loaded.warnings if "extra_args" in problem.key]


def test_a_flag_of_an_older_version_is_explained(tmp_path: Path) -> None:
    """What became of it is said where it stands; it is a warning, since the version that is installed may have it."""
    (problem,) = problems_of(tmp_path, "vllm", '["--enforce-eager", "--swap-space=4"]')
    assert problem.severity is Severity.WARNING
    assert problem.key.endswith("extra_args[1]")
    assert "gone since 0.24.0" in problem.message
    assert "headrace engine verify vllm" in str(problem.hint)


def test_values_and_flags_of_today_are_no_old_flags(tmp_path: Path) -> None:
    """Neither a value that looks like a word of the past nor another engine's old flag is complained about."""
    assert problems_of(tmp_path, "vllm", '["--enforce-eager", "swap-space"]') == []
    assert problems_of(tmp_path, "sglang", '["--swap-space=4"]') == []
