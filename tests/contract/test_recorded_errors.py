"""Error answers recorded from the real vLLM and SGLang, put into our codes by their drivers."""

import json
from pathlib import Path

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ERRORS, ErrorCode, Fault
from headrace.engines.contract import EngineError
from headrace.engines.registry import driver_for

CAPTURES = Path(__file__).parents[1] / "captures"
ENGINES = (EngineKind.VLLM, EngineKind.SGLANG)

EXPECTED = {
    "error_context": ErrorCode.CONTEXT_TOO_LONG,
    "error_context_completion": ErrorCode.CONTEXT_TOO_LONG,
    "error_context_messages": ErrorCode.CONTEXT_TOO_LONG,
    "error_context_stream": ErrorCode.CONTEXT_TOO_LONG,
    "error_malformed": ErrorCode.INVALID_REQUEST,
    "error_max_tokens": ErrorCode.CONTEXT_TOO_LONG,
    "error_messages": ErrorCode.INVALID_REQUEST,
    "error_no_messages": ErrorCode.INVALID_REQUEST,
    "error_schema": ErrorCode.INVALID_REQUEST,
    "error_temperature": ErrorCode.INVALID_REQUEST,
    "error_type": ErrorCode.INVALID_REQUEST,
}
"""What both engines refuse, and how headrace calls it."""


def translated(engine: EngineKind, name: str) -> EngineError:
    status = json.loads((CAPTURES / engine / f"{name}.meta.json").read_text())["status"]
    return driver_for(engine).translate_error(status, (CAPTURES / engine / f"{name}.response").read_bytes())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_same_mistake_has_the_same_code_on_both_engines(engine: EngineKind, name: str) -> None:
    """A caller cannot tell from the code which engine refused."""
    assert translated(engine, name).code is EXPECTED[name]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["error_context", "error_context_completion", "error_max_tokens"])
def test_what_does_not_fit_is_told_with_both_numbers(engine: EngineKind, name: str) -> None:
    """The caller learns what was asked for and what the model holds."""
    asked = {"error_max_tokens": "5000", "error_context_completion": "3001"}.get(name, "3010")
    if engine is EngineKind.VLLM and name != "error_max_tokens":
        asked = "2049"  # "at least": it stops counting there
    message = translated(engine, name).message
    assert asked in message
    assert "2048" in message


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", EXPECTED)
def test_no_path_of_the_engines_machine_reaches_a_caller(engine: EngineKind, name: str) -> None:
    """SGLang's validation errors name its source file with the whole path."""
    message = translated(engine, name).message
    assert "/srv/engine" not in message
    assert ".py" not in message


def test_a_model_that_vllm_does_not_know_is_not_the_callers_fault() -> None:
    """headrace chose the name that the engine is asked for: a wrong one is the operator's, and others may have it."""
    error = translated(EngineKind.VLLM, "error_model")
    assert ERRORS[error.code].fault is Fault.ENGINE
    assert "nope" in error.message


def test_two_greedy_answers_are_the_callers_mistake_on_vllm() -> None:
    """vLLM refuses several choices without sampling, where SGLang and llama.cpp repeat themselves."""
    assert translated(EngineKind.VLLM, "two_greedy_choices").code is ErrorCode.INVALID_REQUEST
