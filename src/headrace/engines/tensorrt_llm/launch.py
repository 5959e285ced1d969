"""How trtllm-serve is started: its flags, and the YAML file for what has no flag. Read from its sources, never run."""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from headrace.engines.contract import EmittedFlag, Launch, OptionProblem, ReplicaSpec
from headrace.engines.flags import (
    HEADRACE,
    check_declared,
    check_extra_args,
    command_words,
    count,
    declared_key,
    emitted,
    switch,
    value,
)
from headrace.engines.launching import (
    OFFLINE,
    chat_template_file,
    check_value,
    fraction_note,
    fraction_of,
    fraction_problems,
    program_words,
    template_row,
)

SOURCE = "TensorRT-LLM, tests/unittest/api_stability/references/trtllm_serve_cli.yaml@029e223"
CONFIG_SOURCE = "TensorRT-LLM, tensorrt_llm/llmapi/llm_args.py"
ENGINE = "TensorRT-LLM"

KV_DTYPES = MappingProxyType({"fp8_e4m3": "fp8", "nvfp4": "nvfp4"})
METHODS = MappingProxyType(
    {"ngram": "NGram", "draft": "DraftTarget", "eagle": "Eagle", "eagle3": "Eagle3", "mtp": "MTP"}
)
DRAFT_KEYS = MappingProxyType({"mtp": "num_nextn_predict_layers"})
"""Where a method counts its guesses under another key than `max_draft_len`."""
ROLES = MappingProxyType({"prefill": "CONTEXT", "decode": "GENERATION"})
CONNECTORS = MappingProxyType({"nixl": "NIXL", "ucx": "UCX", "mpi": "MPI", "mooncake": "MOONCAKE"})

ALIASES = {
    "--extra_llm_api_options": HEADRACE,
    "--set": HEADRACE,
    "--metadata_server_config_file": HEADRACE,
    "--disagg_cluster_uri": HEADRACE,
    "--tensor_parallel_size": "--tp_size",
    "--pipeline_parallel_size": "--pp_size",
    "--moe_expert_parallel_size": "--ep_size",
    "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    "--kv_cache_dtype": "memory.kv_dtype",
    "--enable_chunked_prefill": "batching.chunked_prefill",
    "--revision": "models.source",
    "--hf_revision": "models.source",
}


def config_path(spec: ReplicaSpec) -> Path:
    return spec.file_dir / "trtllm.yaml"


ROWS = (
    value(HEADRACE, "--served_model_name", lambda spec: spec.served_model),
    value(HEADRACE, "--host", lambda spec: spec.host),
    value("port", "--port", lambda spec: spec.port),
    value("models.context_tokens", "--max_seq_len", lambda spec: spec.context_tokens),
    switch("models.trust_remote_code", lambda spec: spec.trust_remote_code or None, "--trust_remote_code"),
    template_row("--chat_template"),
    count("parallel.tensor", "--tp_size", lambda spec: spec.options.parallel.tensor),
    count("parallel.pipeline", "--pp_size", lambda spec: spec.options.parallel.pipeline),
    count("parallel.expert", "--ep_size", lambda spec: spec.options.parallel.expert),
    value("memory.fraction", "--kv_cache_free_gpu_memory_fraction", lambda spec: fraction_of(spec, "free")),
    value("batching.max_sequences", "--max_batch_size", lambda spec: spec.options.batching.max_sequences),
    value("batching.batched_tokens", "--max_num_tokens", lambda spec: spec.options.batching.batched_tokens),
    value("parsers.tool", "--tool_parser", lambda spec: spec.options.parsers.tool),
    value("parsers.reasoning", "--reasoning_parser", lambda spec: spec.options.parsers.reasoning),
    value("telemetry.traces", "--otlp_traces_endpoint", lambda spec: spec.options.telemetry.traces),
    value(
        "disaggregation.role",
        "--server_role",
        lambda spec: ROLES.get(spec.options.disaggregation.role) if spec.options.disaggregation else None,
    ),
    value(HEADRACE, "--config", config_path),
)
"""`--kv_cache_free_gpu_memory_fraction` is the older of two spellings, which all versions seen have."""

CONFIG_KEYS = MappingProxyType(
    {
        "kv_cache_config.dtype": "memory.kv_dtype",
        "kv_cache_config.max_gpu_total_bytes": "memory.kv_bytes",
        "kv_cache_config.enable_block_reuse": "prefix_cache.enabled",
        "kv_cache_config.host_cache_size": "kv_offload.host_bytes",
        "kv_cache_config.event_buffer_max_size": "telemetry.kv_events",
        "enable_chunked_prefill": "batching.chunked_prefill",
        "speculative_config": "speculative.method",
        "speculative_config.speculative_model_dir": "speculative.model",
        "speculative_config.max_draft_len": "speculative.tokens",
        "guided_decoding_backend": "structured_output.backend",
        "return_perf_metrics": "telemetry.metrics",
        "enable_iter_perf_stats": "telemetry.metrics",
        "cache_transceiver_config.backend": "disaggregation.connector",
        "disable_overlap_scheduler": "disaggregation.role",
    }
)
"""Keys of the YAML file, and the options that they come from."""

OPTIONS = (
    frozenset(row.option for row in ROWS)
    | frozenset(CONFIG_KEYS.values())
    | {"prefix_cache.tenant_isolation", "runtime.python", "runtime.command"}
)
EMITTED = emitted(ROWS, SOURCE)
EMITTED_CONFIG = tuple(
    EmittedFlag(flag=key, option=declared_key(option), source=CONFIG_SOURCE) for key, option in CONFIG_KEYS.items()
)
"""Not flags: `--help` does not show them."""

EVENT_BUFFER = 1024
"""KV events held for the next POST to /kv_cache_events; more are dropped. Our choice; its default, 0, keeps none."""


def config_of(spec: ReplicaSpec) -> dict[str, Any]:
    """Return the YAML file's content."""
    options = spec.options
    cache: dict[str, Any] = {}
    if (dtype := KV_DTYPES.get(options.memory.kv_dtype)) is not None:
        cache["dtype"] = dtype
    if options.memory.kv_bytes is not None:
        cache["max_gpu_total_bytes"] = options.memory.kv_bytes
    if options.prefix_cache.enabled is not None:
        cache["enable_block_reuse"] = options.prefix_cache.enabled
    if options.kv_offload is not None:
        cache["host_cache_size"] = options.kv_offload.host_bytes // options.parallel.devices
    if options.telemetry.kv_events:
        cache["event_buffer_max_size"] = EVENT_BUFFER
    # without a backend, trtllm-serve ignores response_format in silence
    config: dict[str, Any] = {"guided_decoding_backend": options.structured_output.backend or "xgrammar"}
    if cache:
        config["kv_cache_config"] = cache
    if options.telemetry.metrics:  # both are off by default
        config |= {"return_perf_metrics": True, "enable_iter_perf_stats": True}
    if options.batching.chunked_prefill is not None:
        config["enable_chunked_prefill"] = options.batching.chunked_prefill
    if (declared := options.speculative) is not None:
        config["speculative_config"] = {
            "decoding_type": METHODS[declared.method],
            DRAFT_KEYS.get(declared.method, "max_draft_len"): declared.tokens,
            **({"speculative_model_dir": str(spec.draft_path)} if spec.draft_path is not None else {}),
        }
    if options.disaggregation is not None:
        config["cache_transceiver_config"] = {"backend": CONNECTORS[options.disaggregation.connector]}
        if options.disaggregation.role == "prefill":
            config["disable_overlap_scheduler"] = True  # its prefill servers refuse to start with it
    return config


def check(spec: ReplicaSpec) -> Iterator[OptionProblem]:
    """Yield what is declared that TensorRT-LLM lacks or cannot do."""
    options = spec.options
    yield from check_declared(spec, OPTIONS, ENGINE)
    yield from check_extra_args(spec, ROWS, ALIASES)
    yield from check_value(("memory", "kv_dtype"), options.memory.kv_dtype, {"auto", *KV_DTYPES}, ENGINE)
    yield from fraction_problems(spec, "free")
    backend = options.structured_output.backend or "xgrammar"
    yield from check_value(("structured_output", "backend"), backend, ("xgrammar", "llguidance"), ENGINE)
    if options.disaggregation is not None:
        yield from check_value(("disaggregation", "role"), options.disaggregation.role, ROLES, ENGINE)
    if spec.embeddings:
        yield OptionProblem(key=("embeddings",), message=f"is an option that {ENGINE} does not have")
    if options.kv_offload is not None and options.kv_offload.backend != "native":
        yield OptionProblem(key=("kv_offload", "backend"), message=f"is a value that {ENGINE} does not have")


def launch(spec: ReplicaSpec) -> Launch:
    """Give the command, its environment and its files."""
    runtime = spec.options.runtime
    program = program_words(runtime, module=("tensorrt_llm.commands.serve",), program=("trtllm-serve",))
    config = msgspec.yaml.encode(config_of(spec)).decode()
    return Launch(
        argv=(*program, "serve", str(spec.model_path), *command_words(ROWS, spec), *spec.options.extra_args),
        env={**OFFLINE, **runtime.env},
        description=f"TensorRT-LLM, {' '.join(program)}",
        files={config_path(spec): config} | chat_template_file(spec),
        notes=tuple(_notes(spec)),
    )


def _notes(spec: ReplicaSpec) -> Iterator[str]:
    if (note := fraction_note(spec, "free")) is not None:
        yield note
    if spec.options.kv_offload is not None:
        share = spec.options.kv_offload.host_bytes // spec.options.parallel.devices
        yield f"kv_offload.host_bytes is host_cache_size {share} for each process of the replica"
    yield "TensorRT-LLM has no queue bound and no drain flag: the gateway's limits hold, and stop_s ends it"
