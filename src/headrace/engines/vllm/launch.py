"""How vLLM is started: every flag that headrace passes, and where it comes from."""

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType

import msgspec

from headrace.engines.contract import Launch, OptionProblem, ReplicaSpec
from headrace.engines.flags import (
    HEADRACE,
    FlagRow,
    always,
    check_declared,
    check_extra_args,
    command_words,
    count,
    emitted,
    switch,
    value,
)
from headrace.engines.launching import (
    OFFLINE,
    chat_template_file,
    check_value,
    drain_s,
    fraction_note,
    fraction_of,
    fraction_problems,
    program_words,
    template_row,
)

SOURCE = "vLLM 0.32.0, `vllm serve --help=all`"
ENGINE = "vLLM"

MODULE = "vllm.entrypoints.cli.main"
"""What its console script `vllm` calls."""
LARGEST_DEFAULT_SEQUENCES = 1024
"""`--max-num-seqs` where nothing is declared is 256 or 1024, by the GPU. Source: vllm/engine/arg_utils.py."""

KV_DTYPES = MappingProxyType(
    {"bf16": "bfloat16", "fp16": "float16", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "nvfp4": "nvfp4"}
)
GRAMMARS = MappingProxyType({"xgrammar": "xgrammar", "llguidance": "guidance", "outlines": "outlines"})
METHODS = MappingProxyType(
    {"ngram": "ngram", "draft": "draft_model", "eagle": "eagle", "eagle3": "eagle3", "mtp": "mtp"}
)
ROLES = MappingProxyType({"prefill": "kv_producer", "decode": "kv_consumer", "both": "kv_both"})
CONNECTORS = MappingProxyType({"nixl": "NixlConnector", "mooncake": "MooncakeConnector"})
"""Source: vllm/config/{kv_transfer,structured_outputs,speculative}.py, kv_connector/factory.py."""

ALIASES = {
    "--uds": HEADRACE,
    "--api-key": HEADRACE,
    "--config": HEADRACE,
    "--root-path": HEADRACE,
    "--ssl-keyfile": HEADRACE,
    "--ssl-certfile": HEADRACE,
    "--model": HEADRACE,
    "--headless": HEADRACE,
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-sc": "speculative.method",
    "--speculative-config": "speculative.method",
    "--device-memory-utilization": "--gpu-memory-utilization",
    "--max-num-active-seqs": "--max-num-seqs",
    "--revision": "models.source",
    "--code-revision": "models.source",
    "--tokenizer-revision": "models.source",
}
"""Other spellings, and flags that are headrace's own business."""


def _events(spec: ReplicaSpec) -> str | None:
    if not spec.options.telemetry.kv_events:
        return None
    return _json(
        {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": spec.event_endpoint,
            "replay_endpoint": spec.replay_endpoint,
        }
    )


def _transfer(spec: ReplicaSpec) -> str | None:
    role = spec.options.disaggregation
    if role is None:
        return None
    return _json(
        {
            "kv_connector": CONNECTORS.get(role.connector, role.connector),
            "kv_role": ROLES[role.role],
            "kv_load_failure_policy": "recompute",  # its own default fails the request
        }
    )


def _queue_bound(spec: ReplicaSpec) -> int:
    """vLLM's bound counts running requests too, so those are added."""
    batching = spec.options.batching
    return batching.max_queued + (batching.max_sequences or LARGEST_DEFAULT_SEQUENCES)


def _offload_gib(spec: ReplicaSpec) -> str | None:
    offload = spec.options.kv_offload
    return None if offload is None else f"{offload.host_bytes / 2**30:.3f}".rstrip("0").rstrip(".")


def _tools(spec: ReplicaSpec) -> Sequence[str]:
    parser = spec.options.parsers.tool
    return () if parser is None else ("--enable-auto-tool-choice", "--tool-call-parser", parser)


def _eplb(spec: ReplicaSpec) -> str | None:
    redundant = spec.options.experts.redundant
    return _json({"num_redundant_experts": redundant}) if redundant else None


def _grammar(spec: ReplicaSpec) -> str | None:
    backend = spec.options.structured_output.backend
    return None if backend is None else _json({"backend": GRAMMARS[backend]})


def _json(document: dict[str, object]) -> str:
    return msgspec.json.encode(document).decode()


ROWS = (
    value(HEADRACE, "--served-model-name", lambda spec: spec.served_model),
    value(HEADRACE, "--host", lambda spec: spec.host),
    value("port", "--port", lambda spec: spec.port),
    value("models.context_tokens", "--max-model-len", lambda spec: spec.context_tokens),
    switch("models.trust_remote_code", lambda spec: spec.trust_remote_code or None, "--trust-remote-code"),
    template_row("--chat-template"),
    FlagRow(
        option="embeddings",
        flags=("--runner", "--convert"),
        words=lambda spec: ("--runner", "pooling", "--convert", "embed") if spec.embeddings else (),
    ),
    count("parallel.tensor", "--tensor-parallel-size", lambda spec: spec.options.parallel.tensor),
    count("parallel.pipeline", "--pipeline-parallel-size", lambda spec: spec.options.parallel.pipeline),
    count("parallel.data", "--data-parallel-size", lambda spec: spec.options.parallel.data),
    switch("parallel.expert", lambda spec: spec.options.parallel.expert > 1 or None, "--enable-expert-parallel"),
    switch("experts.balance", lambda spec: spec.options.experts.balance or None, "--enable-eplb"),
    value("experts.redundant", "--eplb-config", _eplb),
    value("memory.fraction", "--gpu-memory-utilization", lambda spec: fraction_of(spec, "total")),
    value("memory.kv_bytes", "--kv-cache-memory-bytes", lambda spec: spec.options.memory.kv_bytes),
    value("memory.kv_dtype", "--kv-cache-dtype", lambda spec: KV_DTYPES.get(spec.options.memory.kv_dtype)),
    value("batching.max_sequences", "--max-num-seqs", lambda spec: spec.options.batching.max_sequences),
    value("batching.batched_tokens", "--max-num-batched-tokens", lambda spec: spec.options.batching.batched_tokens),
    switch(
        "batching.chunked_prefill",
        lambda spec: spec.options.batching.chunked_prefill,
        "--enable-chunked-prefill",
        "--no-enable-chunked-prefill",
    ),
    value("batching.max_queued", "--max-num-queued-reqs", _queue_bound),
    switch(
        "prefix_cache.enabled",
        lambda spec: spec.options.prefix_cache.enabled,
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
    ),
    value("quantization", "--quantization", lambda spec: spec.options.quantization),
    value(
        "speculative.method",
        "--spec-method",
        lambda spec: METHODS[spec.options.speculative.method] if spec.options.speculative else None,
    ),
    value("speculative.model", "--spec-model", lambda spec: spec.draft_path),
    value(
        "speculative.tokens",
        "--spec-tokens",
        lambda spec: spec.options.speculative.tokens if spec.options.speculative else None,
    ),
    value("kv_offload.host_bytes", "--kv-offloading-size", _offload_gib),
    value(
        "kv_offload.backend",
        "--kv-offloading-backend",
        lambda spec: spec.options.kv_offload.backend if spec.options.kv_offload else None,
    ),
    value("structured_output.backend", "--structured-outputs-config", _grammar),
    FlagRow(option="parsers.tool", flags=("--enable-auto-tool-choice", "--tool-call-parser"), words=_tools),
    value("parsers.reasoning", "--reasoning-parser", lambda spec: spec.options.parsers.reasoning),
    switch("telemetry.metrics", lambda spec: spec.options.telemetry.metrics, None, "--disable-log-stats"),
    value("telemetry.kv_events", "--kv-events-config", _events),
    value("telemetry.traces", "--otlp-traces-endpoint", lambda spec: spec.options.telemetry.traces),
    switch("telemetry.log_requests", lambda spec: spec.options.telemetry.log_requests or None, "--enable-log-requests"),
    value("disaggregation.role", "--kv-transfer-config", _transfer),
    value("stop_s", "--shutdown-timeout", drain_s),  # its own default, 0, cuts the streams that run
    always("--enable-prompt-tokens-details"),  # cached tokens are reported with each request's usage
    always("--disable-uvicorn-access-log"),
)

OPTIONS = frozenset(row.option for row in ROWS) | {
    "disaggregation.connector",
    "prefix_cache.tenant_isolation",  # the gateway sends a cache_salt
    "runtime.python",
    "runtime.command",
    "runtime.device",
}
EMITTED = emitted(ROWS, SOURCE)


def check(spec: ReplicaSpec) -> Iterator[OptionProblem]:
    """Yield what is declared that vLLM lacks or cannot do."""
    options = spec.options
    yield from check_declared(spec, OPTIONS, ENGINE)
    yield from check_extra_args(spec, ROWS, ALIASES)
    yield from check_value(("memory", "kv_dtype"), options.memory.kv_dtype, {"auto", *KV_DTYPES}, ENGINE)
    yield from fraction_problems(spec, "total")
    parallel = options.parallel
    if parallel.expert not in (1, parallel.tensor * parallel.data):
        yield OptionProblem(
            key=("parallel", "expert"),
            message=f"is 1 or tensor x data = {parallel.tensor * parallel.data} on vLLM, which spreads over all",
        )
    if options.disaggregation is not None:
        yield from check_value(
            ("disaggregation", "connector"), options.disaggregation.connector, set(CONNECTORS), ENGINE
        )
    if options.kv_offload is not None and options.runtime.device == "cpu" and options.kv_offload.backend == "native":
        yield OptionProblem(key=("kv_offload", "backend"), message="is not supported by vLLM on CPUs")


def launch(spec: ReplicaSpec) -> Launch:
    """Give the command, its environment and its files."""
    program = program_words(spec.options.runtime, module=(MODULE,), program=("vllm",))
    env = {
        **OFFLINE,
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(math.ceil(spec.load_timeout_s)),  # its own default gives up after 600
    }
    if spec.options.disaggregation is not None:
        env |= {"VLLM_NIXL_SIDE_CHANNEL_HOST": spec.host, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(spec.transfer_port)}
    return Launch(
        argv=(*program, "serve", str(spec.model_path), *command_words(ROWS, spec), *spec.options.extra_args),
        env=env | spec.options.runtime.env,
        description=f"vLLM, {' '.join(program)}",
        files=chat_template_file(spec),
        notes=tuple(_notes(spec)),
    )


def _notes(spec: ReplicaSpec) -> Iterator[str]:
    if (note := fraction_note(spec, "total")) is not None:
        yield note
    yield (
        f"batching.max_queued {spec.options.batching.max_queued} is --max-num-queued-reqs {_queue_bound(spec)}: "
        "vLLM counts running requests too"
    )
