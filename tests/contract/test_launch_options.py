"""Every option that can be declared reaches every engine that headrace starts, or is refused by its name."""

from pathlib import Path
from typing import Any

import pytest
from tests.harness.launch_specs import make_spec

from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.shape import Section
from headrace.domain.endpoint import EngineKind
from headrace.engines.flags import FACTS, iter_declared
from headrace.engines.registry import driver_for

STARTED = [kind for kind in EngineKind if kind is not EngineKind.OPENAI]
DEVICE = {"device_bytes": 80 * 2**30, "working_bytes": 4 * 2**30}

SAMPLES: dict[str, list[dict[str, Any]]] = {
    "parallel.tensor": [{"parallel": {"tensor": 2}}],
    "parallel.pipeline": [{"parallel": {"pipeline": 2}}],
    "parallel.data": [{"parallel": {"data": 2}}],
    "parallel.expert": [{"parallel": {"tensor": 2, "expert": 2}}],
    "memory.fraction": [{"memory": {"fraction": 0.7, "of": of, **DEVICE}} for of in ("total", "static", "free")],
    "memory.kv_bytes": [{"memory": {"kv_bytes": 2**30}}],
    "memory.kv_dtype": [
        {"memory": {"kv_dtype": dtype}} for dtype in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "nvfp4", "q8_0", "q4_0")
    ],
    "batching.max_sequences": [{"batching": {"max_sequences": 9}}],
    "batching.batched_tokens": [{"batching": {"batched_tokens": 999}}],
    "batching.chunked_prefill": [{"batching": {"chunked_prefill": value}} for value in (True, False)],
    "batching.max_queued": [{"batching": {"max_queued": 9}}],
    "prefix_cache.enabled": [{"prefix_cache": {"enabled": value}} for value in (True, False)],
    "prefix_cache.tenant_isolation": [{"prefix_cache": {"tenant_isolation": True}}],
    "quantization": [{"quantization": "fp8"}],
    "speculative.method": [{"speculative": {"method": method}} for method in ("ngram", "mtp")]
    + [{"speculative": {"method": method, "model": "d"}} for method in ("draft", "eagle", "eagle3")],
    "speculative.model": [{"speculative": {"method": "draft", "model": "d"}}],
    "speculative.tokens": [{"speculative": {"method": "ngram", "tokens": 7}}],
    "kv_offload.host_bytes": [{"kv_offload": {"host_bytes": 64 * 2**30}}],
    "kv_offload.backend": [{"kv_offload": {"host_bytes": 64 * 2**30, "backend": "lmcache"}}],
    "kv_offload.ttl_s": [{"kv_offload": {"host_bytes": 64 * 2**30, "ttl_s": 60}}],
    "experts.balance": [{"experts": {"balance": True}}],
    "experts.redundant": [{"experts": {"balance": True, "redundant": 2}}],
    "structured_output.backend": [
        {"structured_output": {"backend": backend}} for backend in ("xgrammar", "llguidance", "outlines")
    ],
    "parsers.tool": [{"parsers": {"tool": "hermes"}}],
    "parsers.reasoning": [{"parsers": {"reasoning": "qwen3"}}],
    "telemetry.metrics": [{"telemetry": {"metrics": False}}],
    "telemetry.kv_events": [{"telemetry": {"kv_events": True}}],
    "telemetry.traces": [{"telemetry": {"traces": "http://c:4317"}}],
    "telemetry.log_requests": [{"telemetry": {"log_requests": True}}],
    "disaggregation.role": [{"disaggregation": {"role": role}} for role in ("prefill", "decode", "both")],
    "disaggregation.connector": [
        {"disaggregation": {"role": "prefill", "connector": connector}} for connector in ("mooncake", "ucx", "mpi")
    ],
    "runtime.python": [{"runtime": {"python": "/p/bin/python"}}],
    "runtime.command": [{"runtime": {"command": ["run"]}}],
    "runtime.device": [{"runtime": {"device": "cpu"}}],
    "runtime.env": [{"runtime": {"env": {"A": "b"}}}],
    "extra_args": [{"extra_args": ["--some-flag"]}],
}

WITHOUT_A_TRACE = {
    ("prefix_cache.tenant_isolation", EngineKind.VLLM): "the gateway sends a cache_salt",
    ("prefix_cache.tenant_isolation", EngineKind.SGLANG): "the gateway sends a cache_salt",
    ("prefix_cache.tenant_isolation", EngineKind.TENSORRT_LLM): "the gateway sends a cache_salt",
    ("prefix_cache.enabled", EngineKind.SGLANG): "true is what it does anyway",
    ("prefix_cache.enabled", EngineKind.LLAMACPP): "true is what it does anyway",
    ("batching.chunked_prefill", EngineKind.SGLANG): "true is what it does anyway",
    ("structured_output.backend", EngineKind.TENSORRT_LLM): "xgrammar is what it is given anyway",
    ("disaggregation.role", EngineKind.LLAMACPP): "the gateway alone knows its roles; each replica can save its slots",
    ("runtime.device", EngineKind.VLLM): "its build decides; headrace shares the cores by it",
}
"""Options that change nothing at the start of an engine, and why."""


@pytest.fixture(autouse=True)
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something executable called llama-server on PATH; it is never run."""
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def leaves() -> set[str]:
    found: set[str] = set()
    for name, field in EngineOptions.model_fields.items():
        parts = (field.annotation, *getattr(field.annotation, "__args__", ()))
        sections = [part for part in parts if isinstance(part, type) and issubclass(part, Section)]
        found |= {f"{name}.{key}" for key in sections[0].model_fields} if sections else {name}
    return found


def test_every_option_has_a_sample():
    """An option that is added is asked of every engine here."""
    assert set(SAMPLES) == leaves() - (FACTS - {"runtime.env", "extra_args"})
    for option, samples in SAMPLES.items():
        assert all(option in iter_declared(EngineOptions.model_validate(sample)) for sample in samples)


@pytest.mark.parametrize("kind", STARTED)
@pytest.mark.parametrize("option", list(SAMPLES))
def test_an_option_is_never_dropped_in_silence(kind: EngineKind, option: str):
    """Declared, it changes how the engine is started, or is a problem with its key, or is listed with the reason."""
    driver = driver_for(kind)
    plain = driver.launch(make_spec())
    traces: list[bool] = []
    for sample in SAMPLES[option]:
        has_draft = "model" in sample.get("speculative", {})
        spec = make_spec(sample, draft_path=Path("/d") if has_draft else None, weight_bytes=2**30)
        problems = {".".join(map(str, problem.key[:2])) for problem in driver.check_options(spec)}
        section = option.split(".")[0]
        if any(problem.split(".")[0] == section for problem in problems):
            traces.append(True)
            continue
        assert problems == set()
        launch = driver.launch(spec)
        traces.append((launch.argv, launch.env, launch.files) != (plain.argv, plain.env, plain.files))
    if (option, kind) in WITHOUT_A_TRACE:
        assert not all(traces), "it has a trace now: take it off the list"
    else:
        assert all(traces)
