"""`headrace engine caps`: what runs where, with the source of each answer."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.catalog.compatibility import Answer, Combination, KvDtype, Precision, Verdict, find_capability, judge
from headrace.catalog.compatibility.judge import ENGINES
from headrace.catalog.gpus import GPUS, gpu_names
from headrace.cli.engine_view import rows_view, sections_view
from headrace.cli.options import JsonOption
from headrace.cli.output import EXIT_PROBLEMS, EXIT_USAGE, emit, fail
from headrace.declaration.nearest import did_you_mean
from headrace.domain.endpoint import EngineKind

if TYPE_CHECKING:
    from rich.console import RenderableType

ModelOption = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="Name as on the Hub, ORG/NAME.")]
EngineOption = Annotated[
    EngineKind | None, typer.Option("--engine", metavar="ENGINE", help="One engine; default: all of them.")
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="GPU", help="Such as h100, or sm89 for a capability; default: all in the catalogue."),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option("--precision", metavar="P", help=f"One of {', '.join(Precision)}; default: all of them."),
]
KvOption = Annotated[
    KvDtype, typer.Option("--kv-dtype", metavar="T", help=f"Type of the KV cache: {', '.join(KvDtype)}.")
]
BuiltOnOption = Annotated[
    str | None,
    typer.Option(
        "--engine-built-on", metavar="GPU", help="The GPU on which a TensorRT engine was built that is to run."
    ),
]

ONE_PER_CAPABILITY = tuple({gpu.compute_capability: gpu.name for gpu in reversed(GPUS)}.values())


def caps(
    model: ModelOption,
    engine: EngineOption = None,
    gpu: GpuOption = None,
    precision: PrecisionOption = None,
    kv_dtype: KvOption = KvDtype.AUTO,
    engine_built_on: BuiltOnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether a model runs on an engine, GPU and precision: yes, no or under conditions, each with its source.

    What is left out ranges over everything there is. Whether the weights fit into memory is another question. Exits
    with 3 where nothing of what was asked is possible; then what would work is proposed.
    """
    if not model or any(char.isspace() for char in model):
        fail(f"--model {model!r} is no name of a model", hint="Write it as on the Hub: ORG/NAME.", code=EXIT_USAGE)
    for named in (gpu, engine_built_on):
        if named is not None and find_capability(named) is None:
            fail(f"GPU {named} is not in the catalogue", hint=_known_gpus(named), code=EXIT_USAGE)
    verdicts = [
        judge(
            Combination(
                model=model,
                engine=one_engine,
                gpu=one_gpu,
                precision=one_precision,
                kv_dtype=kv_dtype,
                engine_built_on=engine_built_on,
            )
        )
        for one_engine, one_gpu, one_precision in product(
            [engine] if engine else ENGINES,
            [gpu] if gpu else sorted(ONE_PER_CAPABILITY, key=lambda name: find_capability(name) or 0),
            [precision] if precision else Precision,
        )
    ]
    emit("engine-caps", verdicts, as_json=as_json, human=lambda: _view(verdicts))
    if all(verdict.answer is Answer.NO for verdict in verdicts):
        raise typer.Exit(EXIT_PROBLEMS)


def _known_gpus(name: str) -> str:
    return did_you_mean(name, gpu_names()) + " A GPU outside the catalogue is given by its capability, such as sm89."


def _view(verdicts: Sequence[Verdict]) -> "RenderableType":
    if len(verdicts) > 1:
        rows = [
            (
                verdict.combination.engine.value,
                verdict.combination.gpu,
                verdict.combination.precision.value,
                verdict.answer.value,
                _deciding(verdict),
            )
            for verdict in verdicts
        ]
        return rows_view((), ("engine", "gpu", "precision", "answer", "because"), rows)
    (verdict,) = verdicts
    asked = verdict.combination
    capability = verdict.compute_capability or "unknown"
    title = (
        f"{verdict.answer.value}: {asked.model} on {asked.engine.value}, {asked.gpu} (compute capability "
        f"{capability}), {asked.precision.value}"
    )
    if asked.kv_dtype is not KvDtype.AUTO:
        title += f", KV cache {asked.kv_dtype.value}"
    reasons = [(reason.about, reason.answer.value, reason.text, reason.source or None) for reason in verdict.reasons]
    instead = [(alternative.changes, alternative.answer.value) for alternative in verdict.instead]
    return sections_view(
        [
            (title, ("about", "answer", "fact", "source"), reasons),
            ("What would work, with one thing changed", ("change", "answer"), instead),
        ]
    )


def _deciding(verdict: Verdict) -> str:
    return next(reason.text for reason in verdict.reasons if reason.answer is verdict.answer)
