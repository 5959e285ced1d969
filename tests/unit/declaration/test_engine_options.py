"""What a pool declares of its engine."""

from typing import Any

import pytest
from pydantic import ValidationError

from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.model import Model, Pool
from headrace.domain.endpoint import EngineKind


@pytest.mark.parametrize(
    "options",
    [
        {"memory": {"fraction": 0}},
        {"memory": {"fraction": 1.1}},
        {"memory": {"fraction": 0.5, "kv_bytes": 1073741824}},
        {"parallel": {"tensor": 0}},
        {"speculative": {"method": "draft"}},
        {"speculative": {"method": "ngram", "model": "m"}},
        {"experts": {"redundant": 1}},
        {"runtime": {"python": "p", "command": ["c"]}},
        {"kv_offload": {}},
        {"runtime": {"env": {"A=B": "x"}}},
        {"runtime": {"env": {"A B": "x"}}},
        {"runtime": {"env": {"": "x"}}},
        {"runtime": {"env": {"A;reboot;B": "x"}}},
        {"runtime": {"env": {"$(reboot)": "x"}}},
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    """Bounds, and keys that exclude or need each other."""
    with pytest.raises(ValidationError):
        EngineOptions.model_validate(options)


def test_a_section_for_one_engine_replaces_the_pools_whole() -> None:
    """Keys of the pool's section do not shine through; other sections stay."""
    pool = Pool.model_validate(
        {
            "model": "m",
            "engine": "sglang",
            "parallel": {"tensor": 4, "pipeline": 2},
            "quantization": "fp8",
            "per_engine": {"sglang": {"parallel": {"tensor": 8}}, "vllm": {"quantization": "awq"}},
        }
    )
    options = pool.options
    assert (options.parallel.tensor, options.parallel.pipeline, options.quantization) == (8, 1, "fp8")
    assert type(options) is EngineOptions


def test_a_model_has_the_form_that_its_engine_reads() -> None:
    """The source of the engine's form replaces source, checksum and size together."""
    model = Model.model_validate(
        {
            "source": "hf:a/b@c",
            "weight_bytes": 5,
            "context_tokens": 4096,
            "per_engine": {"llamacpp": {"source": "file:/m.gguf"}},
        }
    )
    form = model.for_engine(EngineKind.LLAMACPP)
    assert (form.source, form.weight_bytes, form.context_tokens) == ("file:/m.gguf", None, 4096)
    assert model.for_engine(EngineKind.VLLM) is model


def test_devices_of_a_replica() -> None:
    """Tensor x pipeline x data; experts are spread over these."""
    options = EngineOptions.model_validate({"parallel": {"tensor": 4, "pipeline": 2, "data": 2, "expert": 8}})
    assert options.parallel.devices == 16


TEXT = "version: 1\nmodels: {m: {source: 'file:.'}}\npools:\n  p:\n    model: m\n    engine: vllm\n"


def test_a_variable_that_is_named_like_a_secret_holds_none_in_clear(load, problems) -> None:
    """HF_TOKEN comes from the environment or a file and is never shown; other variables stand as they are."""
    (problem,) = [
        found for found in problems(TEXT + "    runtime: {env: {HF_TOKEN: abc}}\n") if "abc" not in str(found)
    ]
    assert problem.message == "holds a secret in clear"
    env = "{HF_TOKEN: '${env:T}', TOKENIZERS_PARALLELISM: 'false'}"
    runtime = load(TEXT + f"    runtime: {{env: {env}}}\n", T="canary").declaration.pools["p"].runtime
    assert runtime.env["HF_TOKEN"] == "canary"
    assert "canary" not in runtime.model_dump_json()
    assert "false" in runtime.model_dump_json()


def test_an_unknown_engine_is_named_with_the_nearest(problems) -> None:
    """Sections for one engine take the names of engines."""
    (problem,) = problems(TEXT + "    per_engine: {vlm: {}}\n")
    assert problem.message.startswith("must be one of llamacpp, vllm")
    assert problem.hint == 'Did you mean "vllm"?'
