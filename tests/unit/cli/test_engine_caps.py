"""headrace engine caps."""

import json

import pytest


def test_a_combination_that_runs_is_answered_with_its_source(run) -> None:
    """Exit 0, the answer in the first line, the address of each fact."""
    ran = run(
        "engine",
        "caps",
        "--model",
        "Qwen/Qwen2.5-32B-Instruct",
        "--engine",
        "vllm",
        "--gpu",
        "h100",
        "--precision",
        "fp8",
    )
    assert ran.code == 0
    assert ran.out.startswith("yes: Qwen/Qwen2.5-32B-Instruct on vllm, h100 (compute capability 9.0), fp8")
    assert "https://github.com/vllm-project/vllm" in ran.out.replace("\n", "")


def test_an_impossible_one_is_refused_with_what_would_work(run) -> None:
    """Exit 3; another precision, engine and GPU are proposed."""
    asked = ("engine", "caps", "--model", "Qwen/Qwen2.5-32B-Instruct", "--engine", "tensorrt-llm", "--gpu", "a100")
    ran = run(*asked, "--precision", "fp8")
    assert ran.code == 3
    assert ran.out.startswith("no: ")
    for change in ("precision bf16", "engine vllm", "GPU l4"):
        assert change in ran.out


def test_what_is_left_out_ranges_over_everything(run) -> None:
    """Without engine and precision every combination is listed, as a table or as JSON."""
    ran = run("engine", "caps", "--model", "openai/gpt-oss-20b", "--gpu", "a100", "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert told["schema"] == "headrace/engine-caps/v1"
    asked = [verdict["combination"] for verdict in told["data"]]
    assert {one["engine"] for one in asked} == {"vllm", "sglang", "tensorrt-llm", "llamacpp"}
    assert {one["gpu"] for one in asked} == {"a100"}
    assert len({one["precision"] for one in asked}) == 11
    assert "conditional" in run("engine", "caps", "--model", "openai/gpt-oss-20b", "--gpu", "a100").out


def test_a_gpu_that_is_not_listed_is_wrong_usage(run) -> None:
    """The nearest name, and how to give a capability instead."""
    ran = run("engine", "caps", "--model", "Qwen/Qwen3-8B", "--gpu", "h1000")
    assert ran.code == 2
    assert 'Did you mean "h100"?' in ran.err
    assert "sm89" in ran.err
    assert run("engine", "caps", "--model", "Qwen/Qwen3-8B", "--gpu", "sm89").code == 0


@pytest.mark.parametrize("columns", ["40", "160"])
def test_it_is_readable_on_a_narrow_and_on_a_wide_screen(run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 40 columns facts are lines, at 160 a table."""
    monkeypatch.setenv("COLUMNS", columns)
    ran = run("engine", "caps", "--model", "Qwen/Qwen3-8B", "--engine", "vllm", "--gpu", "l4", "--precision", "fp8")
    assert ran.code == 0
    assert ("about precision" in ran.out) is (columns == "40")
    assert all(len(line) <= int(columns) for line in ran.out.splitlines() if "://" not in line)


@pytest.mark.parametrize("name", ["", " ", "two words"])
def test_a_model_without_a_name_is_wrong_usage(run, name: str) -> None:
    """Nothing is said of a model that is none."""
    ran = run("engine", "caps", "--model", name)
    assert (ran.code, ran.out) == (2, "")
    assert "--model" in ran.err
