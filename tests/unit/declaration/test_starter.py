"""The file that `headrace init` writes."""

import re

import pytest

from headrace.declaration.builtin import builtin_declaration
from headrace.declaration.starter import FoundEngine, FoundModel, Surroundings, render_starter
from headrace.domain.endpoint import EngineKind

NOTHING = Surroundings(engines=(), asked=("http://127.0.0.1:8000",), gpus=(), has_gpu_tool=False, threads=2)
ENGINES = Surroundings(
    engines=(
        FoundEngine(
            url="http://127.0.0.1:8000",
            engine=EngineKind.VLLM,
            models=(
                FoundModel(name="Qwen/Qwen3-8B", context_tokens=40960),
                FoundModel(name='/m/a b"c\\d\x7f', context_tokens=None),
            ),
        ),
        FoundEngine(url="http://127.0.0.1:30000", engine=EngineKind.SGLANG, models=()),
    ),
    asked=("http://127.0.0.1:8000", "http://127.0.0.1:30000"),
    gpus=("NVIDIA L4",),
    has_gpu_tool=True,
    threads=None,
)


@pytest.mark.parametrize("found", [NOTHING, ENGINES], ids=["nothing", "engines"])
def test_the_file_loads_without_a_complaint(load, found: Surroundings) -> None:
    """What init writes is valid as it stands."""
    assert load(render_starter(found)).warnings == ()


def test_without_engines_it_declares_what_is_built_in(load) -> None:
    """The first file does what `headrace up` without a file does."""
    declaration = load(render_starter(NOTHING)).declaration
    assert declaration.models == builtin_declaration().models
    assert declaration.model_dump() == builtin_declaration().model_dump() | {
        "pools": {"default": builtin_declaration().pools["default"].model_dump() | {"replicas": 1}}
    }


def test_engines_that_answer_become_pools(load) -> None:
    """Each model found gets a pool with the engine's own name for it."""
    declaration = load(render_starter(ENGINES)).declaration
    found = [(pool.model, pool.engine.value, pool.served_model) for pool in declaration.pools.values()]
    assert found == [
        ("Qwen/Qwen3-8B", "vllm", None),
        ("a-b-c-d-", "vllm", '/m/a b"c\\d\x7f'),
        ("default", "sglang", None),
    ]
    assert declaration.models["Qwen/Qwen3-8B"].context_tokens == 40960


@pytest.mark.parametrize("found", [NOTHING, ENGINES], ids=["nothing", "engines"])
def test_the_commented_keys_are_real(load, tmp_path, found: Surroundings) -> None:
    """Taking the comment sign off a suggested key gives a declaration that loads."""
    text = re.sub(r"^( +)# (tls|database|credentials): ", r"\1\2: ", render_starter(found), flags=re.MULTILINE)
    text = text.replace("/etc/headrace/tls", str(tmp_path / "tls"))
    (tmp_path / "tls.crt").touch()
    (tmp_path / "tls.key").touch()
    loaded = load(text, HEADRACE_DB_PASSWORD="x", ENGINE_KEY="y")
    assert loaded.declaration.gateway.tls is not None
    assert loaded.declaration.ledger.database is not None


def test_it_says_what_was_found() -> None:
    """The comments tell what init saw, and what it did not."""
    assert "#   - no engine answered at http://127.0.0.1:8000" in render_starter(NOTHING)
    assert "#   - vllm at http://127.0.0.1:8000, serving Qwen/Qwen3-8B" in render_starter(ENGINES)
    assert "#   - NVIDIA GPUs: NVIDIA L4" in render_starter(ENGINES)
