"""`headrace sim engine`: an engine without a GPU, in the dialect and at the speed of a real one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.options import verb_app
from headrace.cli.output import EXIT_USAGE, fail
from headrace.engines.simulated.config import DialectKind, EngineConfig, Role, TransferLoss
from headrace.engines.simulated.engine_flags import read_engine_flags
from headrace.engines.simulated.faults import Fault, parse_fault
from headrace.engines.simulated.hardware import Hardware, model_of, request_overhead_s

app = verb_app()


@app.callback(epilog="Example: headrace sim engine --dialect sglang --gpu a100 --model qwen2.5-7b --port 30000")
def sim() -> None:
    """Rehearse with simulated engines."""


@app.command(
    context_settings={"allow_extra_args": True},
    epilog="Example: headrace sim engine --dialect vllm --gpu h100 --model qwen2.5-32b --tp 4 --port 8000 "
    "--fault cut:after_tokens=20,probability=0.1",
)
def engine(
    context: typer.Context,
    dialect: Annotated[DialectKind, typer.Option(help="Whose HTTP dialect, metrics and errors it has.")],
    model: Annotated[str, typer.Option(help="A model of the catalogue, such as qwen2.5-32b.")] = "qwen2.5-7b",
    gpu: Annotated[str, typer.Option(help="A GPU of the catalogue, such as h100, a100, l4.")] = "h100",
    tp: Annotated[int, typer.Option(min=1, help="GPUs that share the model (tensor parallel).")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Groups of GPUs that the layers are split over.")] = 1,
    weights: Annotated[str, typer.Option(help="Precision of the weights, such as bf16, fp8, awq-int4.")] = "bf16",
    kv_dtype: Annotated[str, typer.Option(help="Precision of the KV cache: bf16, fp8.")] = "bf16",
    served_model_name: Annotated[str | None, typer.Option(help="Name in requests; default: the model.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    time_scale: Annotated[float, typer.Option(min=0.001, help="Simulated seconds per second; 1 is real time.")] = 1.0,
    context_tokens: Annotated[int | None, typer.Option(min=16, help="Longest prompt and answer together.")] = None,
    max_sequences: Annotated[int | None, typer.Option(min=1, help="Sequences that run at once.")] = None,
    max_batched_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens computed in one step.")] = None,
    max_queued: Annotated[int | None, typer.Option(min=0, help="Requests that may wait; default: no bound.")] = None,
    memory_fraction: Annotated[float, typer.Option(min=0.05, max=1.0, help="Share of the GPU's memory used.")] = 0.9,
    calibration: Annotated[Path | None, typer.Option(help="A file of measured step times instead of the GPU.")] = None,
    step_ms: Annotated[float | None, typer.Option(min=0.01, help="Every step takes so long, whatever it does.")] = None,
    kv_tokens: Annotated[int | None, typer.Option(min=64, help="Size of the KV cache; default: what fits.")] = None,
    load_s: Annotated[float, typer.Option(min=0, help="Seconds until it is ready.")] = 0.0,
    answer_tokens: Annotated[str, typer.Option(help="Shortest:longest answer that ends by itself.")] = "32:256",
    numbered: Annotated[bool, typer.Option("--numbered", help='Answers count: " 0", " 1", ...')] = False,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="The model makes embeddings.")] = False,
    metrics: Annotated[bool, typer.Option(help="Off: SGLang's and TensorRT-LLM's own default.")] = True,
    guided: Annotated[bool, typer.Option(help="TensorRT-LLM's guided decoding backend.")] = True,
    answers_while_loading: Annotated[bool, typer.Option(help="The newest trtllm-serve: 503 `starting`.")] = False,
    shutdown_timeout: Annotated[float, typer.Option(min=0, help="vLLM's; 0 cuts streams on SIGTERM.")] = 0.0,
    engine_version: Annotated[str, typer.Option(help="What it says to be, such as 0.33.0.")] = "simulated",
    role: Annotated[Role, typer.Option(help="Of prefill/decode disaggregation.")] = Role.BOTH,
    transfer_loss: Annotated[TransferLoss, typer.Option(help="What a lost KV transfer means.")] = TransferLoss.FAIL,
    bootstrap_port: Annotated[int | None, typer.Option(help="SGLang's, of a prefill engine.")] = None,
    kv_events: Annotated[str | None, typer.Option(help="JSON, as --kv-events-config; TensorRT-LLM: {}.")] = None,
    slot_dir: Annotated[Path | None, typer.Option(help="llama.cpp's --slot-save-path.")] = None,
    fault: Annotated[list[str] | None, typer.Option(help="KIND[:NAME=VALUE,...]; see `POST /sim/faults`.")] = None,
    seed: Annotated[int, typer.Option(help="Of the faults' chance.")] = 0,
) -> None:
    """Run a simulated engine until SIGTERM or Ctrl-C; prints its URL.

    What follows `--` is read as the real engine's command line and wins: a pool's `runtime.command` may end there.

    Text is a function of the prompt, timing comes from a model of the GPU. Faults can be set while it runs.
    """
    from headrace.engines.simulated.process import run_engine

    config = _config({**context.params, **_engine_flags(context.args)})
    raise typer.Exit(run_engine(config, lambda url: typer.echo(f"{url} ({config.dialect.value}, simulated)")))


def _config(given: Mapping[str, Any]) -> EngineConfig:
    """The options of `engine`, by name, as one engine's description."""
    hardware = _hardware(given)
    return EngineConfig(
        dialect=given["dialect"],
        served_model=given["served_model_name"] or given["model"],
        engine=model_of(hardware),
        request_overhead_s=request_overhead_s(hardware),
        host=given["host"],
        port=given["port"],
        time_scale=given["time_scale"],
        load_s=given["load_s"],
        answer_tokens=_answer_tokens(given["answer_tokens"]),
        is_numbered=given["numbered"],
        serves_embeddings=given["embeddings"],
        has_metrics=given["metrics"],
        has_guided_decoding=given["guided"],
        answers_while_loading=given["answers_while_loading"],
        shutdown_timeout_s=given["shutdown_timeout"],
        version=given["engine_version"],
        kv_cache_dtype="auto" if given["kv_dtype"] == "bf16" else given["kv_dtype"],
        tensor=given["tp"],
        pipeline=given["pp"],
        role=given["role"],
        transfer_loss=given["transfer_loss"],
        bootstrap_port=given["bootstrap_port"],
        slot_dir=given["slot_dir"],
        kv_events=given["kv_events"],
        seed=given["seed"],
        faults=_faults(given["fault"] or []),
    )


def _hardware(given: Mapping[str, Any]) -> Hardware:
    step_ms: float | None = given["step_ms"]
    return Hardware(
        dialect=given["dialect"],
        gpu=given["gpu"],
        model=given["model"],
        tensor_parallel=given["tp"],
        pipeline_parallel=given["pp"],
        weights=given["weights"],
        kv_dtype=given["kv_dtype"],
        context_tokens=given["context_tokens"],
        max_sequences=given["max_sequences"],
        max_batched_tokens=given["max_batched_tokens"],
        max_queued_requests=given["max_queued"],
        memory_fraction=given["memory_fraction"],
        calibration=given["calibration"],
        step_s=None if step_ms is None else step_ms / 1000,
        kv_tokens=given["kv_tokens"],
    )


def _engine_flags(words: list[str]) -> dict[str, object]:
    try:
        return read_engine_flags(words)
    except ValueError as error:
        fail(str(error), code=EXIT_USAGE)


def _answer_tokens(text: str) -> tuple[int, int]:
    shortest, _, longest = text.partition(":")
    try:
        bounds = int(shortest), int(longest or shortest)
    except ValueError:
        fail(f"--answer-tokens must be two numbers such as 32:256, not {text!r}", code=EXIT_USAGE)
    if not 1 <= bounds[0] <= bounds[1]:
        fail(f"--answer-tokens must rise and begin at 1 or above, not {text!r}", code=EXIT_USAGE)
    return bounds


def _faults(texts: list[str]) -> tuple[Fault, ...]:
    try:
        return tuple(parse_fault(text) for text in texts)
    except ValueError as error:
        fail(f"--fault: {error}", code=EXIT_USAGE)
