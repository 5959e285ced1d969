"""Whatever stands in the file: a declaration or a DeclarationError, and a valid one comes back as it was written."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.declaration.builtin import builtin_declaration
from headrace.declaration.diff import diff
from headrace.declaration.fields import iter_key_docs
from headrace.declaration.lint import Machine
from headrace.declaration.load import Loaded, load_text
from headrace.declaration.model import Declaration
from headrace.declaration.problem import DeclarationError, Problem

ANYWHERE = Machine(has_file=lambda _: True, threads=None)


def load(text: str, **environ: str) -> Loaded:
    path = Path("headrace.yaml")
    return load_text(text, path=path, environ=environ, is_elsewhere=False, machine=ANYWHERE)


def problems_of(text: str, **environ: str) -> tuple[Problem, ...]:
    """Everything the loader says; any other exception than DeclarationError fails the test."""
    try:
        return load(text, **environ).warnings
    except DeclarationError as error:
        return error.problems or pytest.fail("an error without a problem")


KEYS = sorted({part for doc in iter_key_docs() for part in doc.key.split(".")} - {"<name>"})
WORDS = st.sampled_from(
    [*KEYS, "m", "p", "*", "<<", "${env:A}", "${file:/nowhere}", "vllm", "http://a", "null", "true"]
)
SCALARS = st.one_of(WORDS, st.text(max_size=20), st.integers(), st.floats(), st.booleans(), st.none())
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400))
@example("a: &a [*a]")
@example("? ? a")
@example("%TAG ! tag:x,2000:\n---\n!a b")
@example("a: |\n  x\n \x85y")
def test_any_text_is_a_declaration_or_a_declaration_error(text: str) -> None:
    """No text makes the loader fail in a way of its own."""
    problems_of(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abm:{}[],&*!|>'\"%@`#?- \n\t0$~<", max_size=120))
def test_any_yaml_punctuation_is_survived(text: str) -> None:
    """YAML's own signs in any order are read or refused, never a crash."""
    problems_of(text)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), TREES, max_size=6))
def test_any_tree_of_known_words_is_survived(tree: dict[str, Any]) -> None:
    """Known keys in unexpected places and with unexpected values get a problem with a line."""
    text = json.dumps({"version": 1, **tree}, allow_nan=True)
    assert all(problem.line > 0 for problem in problems_of(text, A="value"))


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,12}", fullmatch=True)
SECONDS = st.floats(min_value=0.01, max_value=50, allow_nan=False)


def auto_models(models: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Names that stand for some of the models."""
    candidates = st.dictionaries(
        st.sampled_from(models), st.builds(dict, quality=st.floats(min_value=0, max_value=1)), min_size=1
    )
    weights = st.fixed_dictionaries({"latency": SECONDS, "price": SECONDS, "quality": SECONDS})
    sections = st.one_of(
        st.builds(dict, models=candidates, weights=weights),
        st.builds(dict, models=candidates, prefer=st.sampled_from(["cheapest", "best"]), ttft_s=SECONDS),
    )
    names = NAMES.map(lambda name: f"auto-{name}").filter(lambda name: name not in models)
    return st.dictionaries(names, sections, max_size=2)


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, Any]:
    """A valid declaration as plain values."""
    models = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    pools: dict[str, Any] = {}
    for number, model in enumerate(models):
        if draw(st.booleans()):
            pool: dict[str, Any] = {"model": model, "engine": draw(st.sampled_from(["vllm", "openai", "llamacpp"]))}
            ports = draw(st.lists(st.integers(1, 65535), min_size=1, max_size=3, unique=True))
            pool["endpoints"] = [f"http://127.0.0.1:{port}" for port in ports]
            pool["served_model"] = draw(st.none() | st.text(alphabet="abc /\"'\\é☃:#", min_size=1, max_size=9))
        else:
            batching = {"max_sequences": draw(st.integers(1, 256))}
            pool = {"model": model, "replicas": draw(st.integers(1, 64)), "batching": batching}
        pool["probe"] = {"interval_s": draw(SECONDS), "eject_after": draw(st.integers(1, 100))}
        pools[f"pool-{number}"] = pool
    tenants = draw(st.dictionaries(NAMES, st.builds(dict), min_size=1, max_size=3))
    for tenant in tenants:
        tenants[tenant] = {
            "models": draw(st.lists(st.sampled_from(["*", *models]), min_size=1, max_size=2)),
            "limits": {"requests_per_min": draw(st.none() | st.integers(1, 10**9))},
        }
    return {
        "version": 1,
        "gateway": {"heartbeat_s": draw(st.none() | SECONDS), "limits": {"in_flight": draw(st.integers(1, 10**6))}},
        "models": {model: {"source": f"file:/{number}.gguf"} for number, model in enumerate(models)},
        "auto_models": draw(auto_models(models)),
        "pools": pools,
        "tenants": tenants,
        "observability": {"request_log": draw(st.booleans())},
    }


@settings(max_examples=150, deadline=None)
@given(declarations())
def test_a_valid_declaration_comes_back_as_it_was_written(value: dict[str, Any]) -> None:
    """Writing a declaration as YAML and loading it changes nothing."""
    meant = Declaration.model_validate(value)
    loaded = load(json.dumps(value, ensure_ascii=False)).declaration
    assert loaded == meant
    assert diff(meant, loaded) == ()
    again = load(json.dumps(loaded.model_dump(mode="json", exclude_none=True), ensure_ascii=False)).declaration
    assert {change.path for change in diff(loaded, again)} <= {"gateway.heartbeat_s"}


@settings(max_examples=100, deadline=None)
@given(declarations(), st.text(alphabet=st.characters(exclude_categories=["C", "Z"]), min_size=12, max_size=30))
def test_a_secret_is_in_no_message(value: dict[str, Any], token: str) -> None:
    """Whatever the secret is, neither repr, JSON, diff nor a problem shows it."""
    token = f"canary-{token}"  # twelve zeros alone may stand in a number's digits
    for pool in value["pools"].values():
        pool["credentials"] = {"bearer": "${env:TOKEN}", "headers": {"x-key": "${env:TOKEN}"}}
    loaded = load(json.dumps(value), TOKEN=token)
    assert token not in repr(loaded)
    assert token not in loaded.declaration.model_dump_json()
    assert token not in repr(diff(builtin_declaration(), loaded.declaration))
    with pytest.raises(DeclarationError) as caught:
        load(json.dumps(value | {"unknown": 1, "gateway": "${env:TOKEN}"}), TOKEN=token)
    assert token not in str(caught.value)
