"""How SGLang is started: every flag that headrace passes, and where it comes from."""

from collections.abc import Iterator, Sequence
from pathlib import Path
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
    fraction_note,
    fraction_of,
    fraction_problems,
    program_words,
    template_row,
)

SOURCE = "SGLang 0.5.23, `python -m sglang.launch_server --help`"
ENGINE = "SGLang"

GB = 1_000_000_000
"""`--hicache-size` is in gigabytes of 10^9 bytes, for each process of a replica (srt/mem_cache/memory_pool_host.py)."""

KV_DTYPES = MappingProxyType({"bf16": "bf16", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "nvfp4": "nvfp4"})
METHODS = MappingProxyType(
    {"ngram": "NGRAM", "draft": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN"}
)
ROLES = ("prefill", "decode")
CONNECTORS = ("nixl", "mooncake")
"""Source: srt/arg_groups/fields/*.py, srt/disaggregation/."""

ALIASES = {
    "--model-path": HEADRACE,
    "--model": HEADRACE,
    "--api-key": HEADRACE,
    "--admin-api-key": HEADRACE,
    "--config": HEADRACE,
    "--ssl-keyfile": HEADRACE,
    "--ssl-certfile": HEADRACE,
    "--grpc-mode": HEADRACE,
    "--enable-http2": HEADRACE,
    "--tensor-parallel-size": "--tp-size",
    "--tp": "--tp-size",
    "--pipeline-parallel-size": "--pp-size",
    "--data-parallel-size": "--dp-size",
    "--expert-parallel-size": "--ep-size",
    "--ep": "--ep-size",
    "--enable-hicache": "--enable-hierarchical-cache",
    "--hicache-ratio": "--hicache-size",
    "--speculative-draft-model": "--speculative-draft-model-path",
    "--max-total-tokens": "memory.fraction",
    "--log-requests-level": "--log-requests",
    "--revision": "models.source",
    "--speculative-draft-model-revision": "models.source",
}
"""Other spellings, and flags that are headrace's own business."""


def _chunk(spec: ReplicaSpec) -> int | None:
    batching = spec.options.batching
    return -1 if batching.chunked_prefill is False else batching.batched_tokens


def _speculative(spec: ReplicaSpec) -> Sequence[str]:
    """One guess a step (top-k 1), so that N guesses are N steps and N + 1 tokens to check."""
    declared = spec.options.speculative
    if declared is None:
        return ()
    if declared.method == "ngram":
        return ("--speculative-num-draft-tokens", str(declared.tokens))
    return (
        *("--speculative-num-steps", str(declared.tokens)),
        *("--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", str(declared.tokens + 1)),
    )


def _offload(spec: ReplicaSpec) -> Sequence[str]:
    offload = spec.options.kv_offload
    if offload is None:
        return ()
    if offload.backend == "lmcache":
        return ("--enable-lmcache", "--lmcache-config-file", str(spec.file_dir / "lmcache.yaml"))
    return ("--enable-hierarchical-cache", "--hicache-size", str(_hicache_gb(spec)))


def _hicache_gb(spec: ReplicaSpec) -> int:
    offload = spec.options.kv_offload
    return 0 if offload is None else offload.host_bytes // spec.options.parallel.devices // GB


def _traces(spec: ReplicaSpec) -> Sequence[str]:
    """SGLang wants HOST:PORT, without the scheme."""
    endpoint = spec.options.telemetry.traces
    return (
        ()
        if endpoint is None
        else ("--enable-trace", "--otlp-traces-endpoint", endpoint.partition("://")[2] or endpoint)
    )


def _disaggregation(spec: ReplicaSpec) -> Sequence[str]:
    declared = spec.options.disaggregation
    if declared is None:
        return ()
    return (
        *("--disaggregation-mode", declared.role),
        *("--disaggregation-transfer-backend", declared.connector),
        *("--disaggregation-bootstrap-port", str(spec.transfer_port)),
    )


def _events(spec: ReplicaSpec) -> str | None:
    if not spec.options.telemetry.kv_events:
        return None
    document = {
        "publisher": "zmq",
        "endpoint": spec.event_endpoint,
        "replay_endpoint": spec.replay_endpoint,
        "topic": "kv-events",
    }
    return msgspec.json.encode(document).decode()


ROWS = (
    value(HEADRACE, "--served-model-name", lambda spec: spec.served_model),
    value(HEADRACE, "--host", lambda spec: spec.host),
    value("port", "--port", lambda spec: spec.port),
    value("models.context_tokens", "--context-length", lambda spec: spec.context_tokens),
    switch("models.trust_remote_code", lambda spec: spec.trust_remote_code or None, "--trust-remote-code"),
    template_row("--chat-template"),
    switch("embeddings", lambda spec: spec.embeddings or None, "--is-embedding"),
    value("runtime.device", "--device", lambda spec: "cpu" if spec.options.runtime.device == "cpu" else None),
    count("parallel.tensor", "--tp-size", lambda spec: spec.options.parallel.tensor),
    count("parallel.pipeline", "--pp-size", lambda spec: spec.options.parallel.pipeline),
    count("parallel.data", "--dp-size", lambda spec: spec.options.parallel.data),
    count("parallel.expert", "--ep-size", lambda spec: spec.options.parallel.expert),
    switch("experts.balance", lambda spec: spec.options.experts.balance or None, "--enable-eplb"),
    value("experts.redundant", "--ep-num-redundant-experts", lambda spec: spec.options.experts.redundant or None),
    value("memory.fraction", "--mem-fraction-static", lambda spec: fraction_of(spec, "static")),
    value("memory.kv_dtype", "--kv-cache-dtype", lambda spec: KV_DTYPES.get(spec.options.memory.kv_dtype)),
    value("batching.max_sequences", "--max-running-requests", lambda spec: spec.options.batching.max_sequences),
    value("batching.batched_tokens", "--max-prefill-tokens", lambda spec: spec.options.batching.batched_tokens),
    value("batching.chunked_prefill", "--chunked-prefill-size", _chunk),
    value("batching.max_queued", "--max-queued-requests", lambda spec: spec.options.batching.max_queued),
    switch("prefix_cache.enabled", lambda spec: spec.options.prefix_cache.enabled, None, "--disable-radix-cache"),
    value("quantization", "--quantization", lambda spec: spec.options.quantization),
    value(
        "speculative.method",
        "--speculative-algorithm",
        lambda spec: METHODS[spec.options.speculative.method] if spec.options.speculative else None,
    ),
    value("speculative.model", "--speculative-draft-model-path", lambda spec: spec.draft_path),
    FlagRow(
        option="speculative.tokens",
        flags=("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"),
        words=_speculative,
    ),
    FlagRow(
        option="kv_offload.host_bytes",
        flags=("--enable-hierarchical-cache", "--hicache-size", "--enable-lmcache", "--lmcache-config-file"),
        words=_offload,
    ),
    value("structured_output.backend", "--grammar-backend", lambda spec: spec.options.structured_output.backend),
    value("parsers.tool", "--tool-call-parser", lambda spec: spec.options.parsers.tool),
    value("parsers.reasoning", "--reasoning-parser", lambda spec: spec.options.parsers.reasoning),
    switch("telemetry.metrics", lambda spec: spec.options.telemetry.metrics, "--enable-metrics"),  # off by default
    value("telemetry.kv_events", "--kv-events-config", _events),
    FlagRow(option="telemetry.traces", flags=("--enable-trace", "--otlp-traces-endpoint"), words=_traces),
    switch("telemetry.log_requests", lambda spec: spec.options.telemetry.log_requests or None, "--log-requests"),
    FlagRow(
        option="disaggregation.role",
        flags=(
            "--disaggregation-mode",
            "--disaggregation-transfer-backend",
            "--disaggregation-bootstrap-port",
        ),
        words=_disaggregation,
    ),
    always("--enable-cache-report"),  # cached tokens are reported with each request's usage
    always("--log-level-http", "warning"),
)

OPTIONS = frozenset(row.option for row in ROWS) | {
    "threads",  # OMP_NUM_THREADS, on CPUs
    "disaggregation.connector",
    "kv_offload.backend",
    "prefix_cache.tenant_isolation",  # the gateway sends a cache_salt
    "runtime.python",
    "runtime.command",
}
EMITTED = emitted(ROWS, SOURCE)


CUTS_PROMPTS = "--allow-auto-truncate"


def check(spec: ReplicaSpec) -> Iterator[OptionProblem]:
    """Yield what is declared that SGLang lacks or cannot do."""
    options = spec.options
    yield from check_declared(spec, OPTIONS, ENGINE)
    yield from check_extra_args(spec, ROWS, ALIASES)
    yield from check_value(("memory", "kv_dtype"), options.memory.kv_dtype, {"auto", *KV_DTYPES}, ENGINE)
    yield from fraction_problems(spec, "static")
    if options.disaggregation is not None:
        declared = options.disaggregation
        yield from check_value(("disaggregation", "role"), declared.role, ROLES, ENGINE)
        yield from check_value(("disaggregation", "connector"), declared.connector, CONNECTORS, ENGINE)
    if options.kv_offload is not None and options.kv_offload.backend == "native" and _hicache_gb(spec) < 1:
        yield OptionProblem(
            key=("kv_offload", "host_bytes"),
            message=f"is less than {GB} bytes for each of {options.parallel.devices} process(es), the least that "
            "SGLang's HiCache takes",
        )
    if options.prefix_cache.enabled is False and options.kv_offload is not None:
        yield OptionProblem(key=("prefix_cache", "enabled"), message="must be on for a KV offload tier on SGLang")
    if CUTS_PROMPTS in options.extra_args:
        yield OptionProblem(
            key=("extra_args", options.extra_args.index(CUTS_PROMPTS)),
            message="cuts prompts that are too long without a word; callers get context_too_long instead",
            hint="Take it out.",
        )


def launch(spec: ReplicaSpec) -> Launch:
    """Give the command, its environment and its files."""
    runtime = spec.options.runtime
    program = program_words(runtime, module=("sglang.launch_server",), program=("sglang", "serve"))
    env = dict(OFFLINE)
    if runtime.device == "cpu":
        env |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": str(spec.threads)}
    return Launch(
        argv=(*program, "--model-path", str(spec.model_path), *command_words(ROWS, spec), *spec.options.extra_args),
        env=env | runtime.env,
        description=f"SGLang, {' '.join(program)}",
        files=chat_template_file(spec) | _lmcache_file(spec),
        notes=tuple(_notes(spec)),
    )


def _lmcache_file(spec: ReplicaSpec) -> dict[Path, str]:
    offload = spec.options.kv_offload
    if offload is None or offload.backend != "lmcache":
        return {}
    size_gib = offload.host_bytes / spec.options.parallel.devices / 2**30
    text = f"chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: {size_gib:.3f}\n"
    return {spec.file_dir / "lmcache.yaml": text}


def _notes(spec: ReplicaSpec) -> Iterator[str]:
    if (note := fraction_note(spec, "static")) is not None:
        yield note
    if spec.options.kv_offload is not None and spec.options.kv_offload.backend == "native":
        yield f"kv_offload.host_bytes is --hicache-size {_hicache_gb(spec)}: 10^9 bytes for each of its processes"
    if spec.options.disaggregation is not None:
        yield "batching.max_queued has no effect with disaggregation: SGLang ignores its queue bound there"
