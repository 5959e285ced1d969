"""The declarations that need no file."""

import pytest

from headrace.declaration.builtin import attach_declaration, builtin_declaration, callable_name
from headrace.declaration.load import in_memory
from headrace.domain.endpoint import EngineKind


def test_the_built_in_declaration_stays_on_this_machine() -> None:
    """Nobody else can reach a headrace that was only started."""
    declaration = builtin_declaration()
    assert declaration.gateway.listen.startswith("127.0.0.1:")
    assert declaration.gateway.control.startswith("127.0.0.1:")
    assert list(declaration.tenants) == ["default"]
    assert in_memory(declaration).warnings == ()


def test_attaching_keeps_the_engines_own_model_name() -> None:
    """Callers write a plain name, the engine gets its own."""
    declaration = attach_declaration("http://127.0.0.1:8000/v1/", engine=EngineKind.VLLM, model="/models/Qwen3 8B")
    pool = declaration.pools["default"]
    assert (pool.model, pool.served_model) == ("Qwen3-8B", "/models/Qwen3 8B")
    assert (pool.engine, pool.endpoints) == (EngineKind.VLLM, ("http://127.0.0.1:8000",))
    assert in_memory(declaration).warnings == ()


def test_attaching_to_what_says_nothing() -> None:
    """An engine that does not name itself is any OpenAI-compatible server."""
    declaration = attach_declaration("http://127.0.0.1:8000")
    assert declaration.pools["default"].engine is EngineKind.OPENAI
    assert list(declaration.models) == ["default"]
    assert attach_declaration("http://h", model="m", context_tokens=32768).models["m"].context_tokens == 32768


@pytest.mark.parametrize(
    ("served", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/models/x", "x"),
        ("./x y/", "x-y"),
        ("modèle", "mod-le"),
        ("///", "default"),
        ("a" * 200, "a" * 128),
    ],
)
def test_names_that_callers_can_write(served: str, name: str) -> None:
    """A file path becomes its last part; what no name may hold becomes a dash."""
    assert callable_name(served) == name
