"""`headrace sim engine`: an engine without a GPU, in the dialect and at the speed of a real one."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import verb_app
from headrace.cli.output import EXIT_USAGE, fail
from headrace.engines.simulated.config import DialectKind, EngineConfig, Role, TransferLoss
from headrace.engines.simulated.faults import Fault, parse_fault
from headrace.engines.simulated.hardware import Hardware, model_of

app = verb_app()


@app.callback()
def sim() -> None:
    """Rehearse with simulated engines."""


@app.command(
    epilog="Example: headrace sim engine --dialect vllm --gpu h100 --model qwen2.5-32b --tp 4 --port 8000 "
    "--fault cut:after_tokens=20,probability=0.1"
)
def engine(
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
    metrics: Annotated[bool, typer.Option(help="SGLang and TensorRT-LLM have none unless asked.")] = True,
    guided: Annotated[bool, typer.Option(help="TensorRT-LLM's guided decoding backend.")] = True,
    answers_while_loading: Annotated[bool, typer.Option(help="The newest trtllm-serve: 503 `starting`.")] = False,
    shutdown_timeout: Annotated[float, typer.Option(min=0, help="vLLM's; 0 cuts streams on SIGTERM.")] = 0.0,
    role: Annotated[Role, typer.Option(help="Of prefill/decode disaggregation.")] = Role.BOTH,
    transfer_loss: Annotated[TransferLoss, typer.Option(help="What a lost KV transfer means.")] = TransferLoss.FAIL,
    bootstrap_port: Annotated[int | None, typer.Option(help="SGLang's, of a prefill engine.")] = None,
    slot_dir: Annotated[Path | None, typer.Option(help="llama.cpp's --slot-save-path.")] = None,
    fault: Annotated[list[str] | None, typer.Option(help="KIND[:NAME=VALUE,...]; see `POST /sim/faults`.")] = None,
    seed: Annotated[int, typer.Option(help="Of the faults' chance.")] = 0,
) -> None:
    """Run a simulated engine until SIGTERM or Ctrl-C; prints its URL.

    Text is a function of the prompt, timing comes from a model of the GPU. Faults can be set while it runs.
    """
    from headrace.engines.simulated.process import run_engine

    hardware = Hardware(
        dialect=dialect,
        gpu=gpu,
        model=model,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        weights=weights,
        kv_dtype=kv_dtype,
        context_tokens=context_tokens,
        max_sequences=max_sequences,
        max_batched_tokens=max_batched_tokens,
        max_queued_requests=max_queued,
        memory_fraction=memory_fraction,
        calibration=calibration,
        step_s=None if step_ms is None else step_ms / 1000,
        kv_tokens=kv_tokens,
    )
    config = EngineConfig(
        dialect=dialect,
        served_model=served_model_name or model,
        engine=model_of(hardware),
        host=host,
        port=port,
        time_scale=time_scale,
        load_s=load_s,
        answer_tokens=_answer_tokens(answer_tokens),
        is_numbered=numbered,
        has_metrics=metrics,
        has_guided_decoding=guided,
        answers_while_loading=answers_while_loading,
        shutdown_timeout_s=shutdown_timeout,
        role=role,
        transfer_loss=transfer_loss,
        bootstrap_port=bootstrap_port,
        slot_dir=slot_dir,
        seed=seed,
        faults=_faults(fault or []),
    )
    raise typer.Exit(run_engine(config, lambda url: typer.echo(f"{url} ({dialect.value}, simulated)")))


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
