"""How llama.cpp is started: `llama-server` from PATH where there is one, else xllamacpp in a process of ours."""

import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import MappingProxyType

import msgspec

from headrace.declaration.engine_options import EMBEDDED_BATCHED_TOKENS, EMBEDDED_SEQUENCES
from headrace.engines.contract import EngineUnavailableError, Launch, OptionProblem, ReplicaSpec
from headrace.engines.flags import (
    HEADRACE,
    always,
    check_declared,
    check_extra_args,
    command_words,
    emitted,
    switch,
    value,
)
from headrace.engines.launching import check_value
from headrace.engines.llamacpp.config import DEFAULT_PROMPT_CACHE_MIB, ProcessConfig
from headrace.engines.llamacpp.gguf_facts import has_pooling
from headrace.extras import pip_command

SOURCE = "llama.cpp b11434, `llama-server --help`"
ENGINE = "llama.cpp"
NATIVE_PROGRAM = "llama-server"
"""Preferred where it is on PATH, since a build for this machine uses its CPU's full instruction set."""

NO_BROWSER_ORIGIN = "https://browsers.invalid"
"""llama.cpp lets any web page call it unless an origin is named; this one cannot exist."""

KV_DTYPES = MappingProxyType({"bf16": "bf16", "fp16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"})
"""llama.cpp's own default is f16."""
MIB = 2**20

ALIASES = {
    "-m": HEADRACE,
    "-a": HEADRACE,
    "-mu": HEADRACE,
    "-hf": HEADRACE,
    "-c": "models.context_tokens",
    "-np": "--parallel",
    "-b": "--batch-size",
    "-ub": "--ubatch-size",
    "-t": "--threads",
    "-tb": "--threads-batch",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "--embedding": "embeddings",
    "--api-key": HEADRACE,
    "--api-key-file": HEADRACE,
    "--api-prefix": HEADRACE,
    "--model-url": HEADRACE,
    "--hf-repo": HEADRACE,
    "--cache-ram": "kv_offload.host_bytes",
    "-cram": "kv_offload.host_bytes",
    "--chat-template-file": "--chat-template",
    "--ssl-key-file": HEADRACE,
    "--ssl-cert-file": HEADRACE,
}
"""Other spellings, and flags that are headrace's own business."""


def _sequences(spec: ReplicaSpec) -> int:
    return spec.options.batching.max_sequences or EMBEDDED_SEQUENCES


def _batch_tokens(spec: ReplicaSpec) -> int:
    """Prompt tokens of one step; an embedding's whole input must fit into one, or llama.cpp refuses it."""
    if spec.embeddings:
        return spec.context_tokens
    return min(spec.options.batching.batched_tokens or EMBEDDED_BATCHED_TOKENS, spec.context_tokens)


def _prompt_cache_mib(spec: ReplicaSpec) -> int:
    offload = spec.options.kv_offload
    return DEFAULT_PROMPT_CACHE_MIB if offload is None else max(1, offload.host_bytes // MIB)


def _pooling(spec: ReplicaSpec) -> str | None:
    return "mean" if spec.embeddings and not has_pooling(spec.model_path) else None


def _kv_dtype(spec: ReplicaSpec) -> str | None:
    return KV_DTYPES.get(spec.options.memory.kv_dtype)


ROWS = (
    value(HEADRACE, "--model", lambda spec: spec.model_path),
    value(HEADRACE, "--alias", lambda spec: spec.served_model),
    value(HEADRACE, "--host", lambda spec: spec.host),
    value("port", "--port", lambda spec: spec.port),
    value("models.context_tokens", "--ctx-size", lambda spec: spec.context_tokens * _sequences(spec)),
    value("batching.max_sequences", "--parallel", _sequences),
    value("batching.batched_tokens", "--batch-size", _batch_tokens),
    value("batching.batched_tokens", "--ubatch-size", _batch_tokens),
    value("threads", "--threads", lambda spec: spec.threads),
    value("threads", "--threads-batch", lambda spec: spec.threads),
    value(HEADRACE, "--threads-http", lambda spec: process_config(spec).http_threads),
    value(HEADRACE, "--slot-save-path", lambda spec: str(spec.slot_dir) + "/"),
    value("memory.kv_dtype", "--cache-type-k", _kv_dtype),
    value("memory.kv_dtype", "--cache-type-v", _kv_dtype),
    switch("prefix_cache.enabled", lambda spec: spec.options.prefix_cache.enabled, None, "--no-cache-prompt"),
    value("runtime.device", "--n-gpu-layers", lambda spec: "0" if spec.options.runtime.device == "cpu" else None),
    always("--metrics"),
    always("--no-webui"),
    always("--jinja"),
    switch("embeddings", lambda spec: spec.embeddings or None, "--embeddings"),
    value("embeddings", "--pooling", _pooling),
    value("models.chat_template", "--chat-template", lambda spec: spec.chat_template),
)

OPTIONS = frozenset(row.option for row in ROWS) | {"kv_offload.host_bytes", "runtime.command", "disaggregation.role"}
"""Of its role nothing is said to the engine: any server saves and restores slots."""
EMITTED = emitted(ROWS, SOURCE)

NATIVE_ONLY = ("memory.kv_dtype", "prefix_cache.enabled", "runtime.device")
"""What the embedded xllamacpp is not told."""


def check(spec: ReplicaSpec) -> Iterator[OptionProblem]:
    """Yield what is declared that llama.cpp lacks or cannot do."""
    options = spec.options
    yield from check_declared(spec, OPTIONS, ENGINE)
    yield from check_extra_args(spec, ROWS, ALIASES)
    yield from check_value(("memory", "kv_dtype"), options.memory.kv_dtype, {"auto", *KV_DTYPES}, ENGINE)
    if spec.trust_remote_code:
        yield OptionProblem(key=("model",), message="trusts remote code, which llama.cpp never runs")


def process_config(spec: ReplicaSpec) -> ProcessConfig:
    """Resolve a replica to what the embedded engine's process is told."""
    return ProcessConfig(
        model_path=str(spec.model_path),
        served_model=spec.served_model,
        host=spec.host,
        port=spec.port,
        context_tokens=spec.context_tokens,
        slots=_sequences(spec),
        threads=spec.threads,
        batch_tokens=_batch_tokens(spec),
        slot_dir=str(spec.slot_dir),
        is_embedding=spec.embeddings,
        pooling=_pooling(spec),
        chat_template=spec.chat_template,
        prompt_cache_mib=_prompt_cache_mib(spec),
    )


def launch(spec: ReplicaSpec) -> Launch:
    """Give the command for the native server where there is one, else for the embedded one.

    Raises: EngineUnavailableError.
    """
    runtime = spec.options.runtime
    program = shutil.which(NATIVE_PROGRAM)
    if runtime.command or program is not None:
        return _launch_native(runtime.command or (str(program),), spec)
    if find_spec("xllamacpp") is None:
        raise EngineUnavailableError(
            f"no llama.cpp here: neither {NATIVE_PROGRAM} on PATH nor the Python package xllamacpp. "
            f"Install one, for example: {pip_command('xllamacpp')}"
        )
    _refuse_native_only(spec)
    config = msgspec.json.encode(process_config(spec)).decode()
    return Launch(
        argv=(sys.executable, "-m", "headrace.engines.llamacpp.process", "--config", config),
        env=dict(runtime.env),
        description=f"llama.cpp in xllamacpp {_xllamacpp_version()}, {spec.threads} thread(s)",
    )


def _launch_native(program: tuple[str, ...], spec: ReplicaSpec) -> Launch:
    # as variables, since an older llama-server ignores those it does not know but refuses unknown flags
    env = {
        "LLAMA_ARG_CACHE_RAM": str(_prompt_cache_mib(spec)),
        "LLAMA_ARG_CORS_ORIGINS": NO_BROWSER_ORIGIN,
        "LLAMA_ARG_OFFLINE": "1",
        "LLAMA_ARG_SSE_PING_INTERVAL": "-1",
    }
    return Launch(
        argv=(*program, *command_words(ROWS, spec), *spec.options.extra_args),
        env=env | spec.options.runtime.env,
        description=f"llama.cpp in {' '.join(program)}, {spec.threads} thread(s)",
        notes=tuple(_notes(spec)),
    )


def _notes(spec: ReplicaSpec) -> Iterator[str]:
    sequences = _sequences(spec)
    yield (
        f"models.context_tokens {spec.context_tokens} x {sequences} sequences is --ctx-size "
        f"{spec.context_tokens * sequences}: llama.cpp divides its context between sequences"
    )
    if spec.options.kv_offload is not None:
        yield f"kv_offload.host_bytes is LLAMA_ARG_CACHE_RAM {_prompt_cache_mib(spec)} MiB: prompts kept in memory"


def _refuse_native_only(spec: ReplicaSpec) -> None:
    rows = {row.option for row in ROWS if row.option in NATIVE_ONLY and row.words(spec)}
    named = [f"extra_args {list(spec.options.extra_args)}"] if spec.options.extra_args else []
    named += sorted(rows)
    if named:
        raise EngineUnavailableError(
            f"pool {spec.pool}: {', '.join(named)} need {NATIVE_PROGRAM} on PATH; the embedded xllamacpp takes none. "
            "Leave them out, or install llama-server"
        )


def _xllamacpp_version() -> str:
    try:
        return version("xllamacpp")
    except PackageNotFoundError:
        return "(unknown version)"
