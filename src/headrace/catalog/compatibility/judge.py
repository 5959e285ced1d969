"""One judgement over the facts: a combination in, a verdict with reasons and alternatives out. Pure."""

import re
from collections.abc import Iterator
from dataclasses import replace

from headrace.catalog.compatibility.families import SOURCES, TRTLLM_RECIPES, Family, find_family
from headrace.catalog.compatibility.rules import (
    ENGINE_FILE_HARDWARE,
    ENGINE_FILE_REMOVED,
    ENGINE_FILE_VERSION,
    RULES,
    TRTLLM_MATRIX,
)
from headrace.catalog.compatibility.terms import (
    Alternative,
    Answer,
    Combination,
    KvDtype,
    Precision,
    Reason,
    Verdict,
)
from headrace.catalog.gpus import GPUS, find_gpu
from headrace.domain.endpoint import EngineKind

ENGINES = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM, EngineKind.LLAMACPP)
"""Engines that the matrix knows."""

_WORST = (Answer.NO, Answer.CONDITIONAL, Answer.YES)
_SM = re.compile(r"(?:sm_?|cc)?(\d{1,2})[._]?(\d)\Z", re.IGNORECASE)
_BLOCK_SCALED = (90, 100, 103)
"""Capabilities on which TensorRT-LLM has block-scaled FP8. Source: TRTLLM_MATRIX."""

_PROPOSED = (
    Precision.FP8,
    Precision.BF16,
    Precision.AWQ_INT4,
    Precision.GGUF_Q4,
    Precision.GPTQ_INT4,
    Precision.NVFP4,
    Precision.FP16,
    Precision.INT8,
    Precision.GGUF_Q8,
    Precision.BITSANDBYTES,
)
"""Which other precision is proposed first."""


def find_capability(gpu: str) -> int | None:
    """Return 10 * major + minor of a GPU's compute capability: of the catalogue, or of `sm89`, `8.9` and the like."""
    known = find_gpu(gpu)
    if known is not None:
        major, minor = known.compute_capability
        return 10 * major + minor
    match = _SM.match(gpu.strip())
    return int(match[1]) * 10 + int(match[2]) if match else None


def judge(combination: Combination) -> Verdict:
    """Answer `combination`: the worst of its reasons, and, where that is no, what would work with one thing changed."""
    verdict = _judge(combination)
    if verdict.answer is not Answer.NO:
        return verdict
    return replace(verdict, instead=tuple(_alternatives(combination)))


def _judge(combination: Combination) -> Verdict:
    capability = find_capability(combination.gpu)
    reasons = tuple(_reasons(combination, capability))
    answer = next(answer for answer in _WORST if any(reason.answer is answer for reason in reasons))
    return Verdict(
        combination=combination,
        answer=answer,
        compute_capability=None if capability is None else f"{capability // 10}.{capability % 10}",
        reasons=reasons,
    )


def _reasons(combination: Combination, capability: int | None) -> Iterator[Reason]:
    engine, precision = combination.engine, combination.precision
    if engine not in ENGINES:
        yield _unknown("engine", f"nothing is known of what runs behind engine {engine.value}")
        return
    if capability is None:
        yield _unknown("engine", f"GPU {combination.gpu} is not in the catalogue: name its capability, such as sm89")
        return
    yield from _about("engine", engine, "", capability)
    found = list(_about("precision", engine, precision.value, capability))
    yield from found or [_unknown("precision", f"{precision.value} on {engine.value} is in no source that was read")]
    if combination.kv_dtype is not KvDtype.AUTO:
        found = list(_about("kv-cache", engine, combination.kv_dtype.value, capability))
        yield from found or [
            _unknown("kv-cache", f"a {combination.kv_dtype.value} KV cache on {engine.value} is in no source read")
        ]
    yield from _about_model(combination, capability)
    if combination.engine_built_on is not None:
        yield from _about_engine_file(combination, capability)


def _about(about: str, engine: EngineKind, subject: str, capability: int) -> Iterator[Reason]:
    for rule in RULES:
        is_subject = rule.about == about and (not rule.subjects or subject in rule.subjects)
        if rule.engine is engine and is_subject and rule.least <= capability < rule.below:
            yield Reason(answer=rule.answer, about=about, text=rule.text, source=rule.source)
            return


def _about_model(combination: Combination, capability: int) -> Iterator[Reason]:
    engine, precision = combination.engine, combination.precision
    family = find_family(combination.model)
    if family is None:
        yield _unknown(
            "model",
            f"{combination.model} is of no family in the catalogue: look its architecture up in the engine's list",
            SOURCES[engine],
        )
        return
    if engine not in family.engines:
        yield Reason(
            answer=Answer.NO,
            about="model",
            text=f"{engine.value} does not list {family.architecture} ({family.name})",
            source=SOURCES[engine],
        )
        return
    is_autodeploy = engine is EngineKind.TENSORRT_LLM and family.autodeploy
    yield Reason(
        answer=Answer.CONDITIONAL if is_autodeploy else Answer.YES,
        about="model",
        text=f"{family.name} ({family.architecture})" + (" through AutoDeploy only" if is_autodeploy else ""),
        source=SOURCES[engine],
    )
    yield from _about_checkpoint(family, precision, engine, capability)


def _about_checkpoint(family: Family, precision: Precision, engine: EngineKind, capability: int) -> Iterator[Reason]:
    """What the family's published form and NVIDIA's matrix of recipes add."""
    is_trtllm = engine is EngineKind.TENSORRT_LLM
    if is_trtllm and precision is Precision.FP8 and family.has_block_scales and capability not in _BLOCK_SCALED:
        yield Reason(
            answer=Answer.NO,
            about="model",
            text=f"{family.name} is published in FP8 with block scales, for which TensorRT-LLM has kernels on Hopper "
            "and B200-class GPUs only",
            source=TRTLLM_MATRIX,
        )
    is_16_bit = precision in (Precision.BF16, Precision.FP16)
    if is_trtllm and not is_16_bit and family.trtllm_recipes is not None and precision not in family.trtllm_recipes:
        yield Reason(
            answer=Answer.CONDITIONAL,
            about="model",
            text=f"NVIDIA's matrix of recipes does not mark {precision.value} for {family.name}: try it first",
            source=TRTLLM_RECIPES,
        )


def _about_engine_file(combination: Combination, capability: int) -> Iterator[Reason]:
    """A TensorRT engine belongs to the GPU, the TensorRT version and the layout it was built for."""
    built_on = str(combination.engine_built_on)
    if combination.engine is not EngineKind.TENSORRT_LLM:
        yield Reason(
            answer=Answer.NO,
            about="engine-file",
            text=f"{combination.engine.value} does not load TensorRT engines",
            source=ENGINE_FILE_HARDWARE,
        )
        return
    built_for = find_capability(built_on)
    if built_for != capability:
        yield Reason(
            answer=Answer.NO,
            about="engine-file",
            text=f"an engine built on {built_on} does not run on {combination.gpu}: engines are not portable across "
            "GPU architectures. Build it anew on this GPU, or serve the checkpoint without an engine",
            source=ENGINE_FILE_HARDWARE,
        )
    elif find_gpu(built_on) is not find_gpu(combination.gpu) or find_gpu(built_on) is None:
        yield Reason(
            answer=Answer.CONDITIONAL,
            about="engine-file",
            text=f"{built_on} and {combination.gpu} share a compute capability: only an engine built with hardware "
            "compatibility (same compute capability) moves between them",
            source=ENGINE_FILE_HARDWARE,
        )
    yield Reason(
        answer=Answer.CONDITIONAL,
        about="engine-file",
        text="the same TensorRT version and platform must load it that built it, with the same CUDA major version, "
        "tensor and pipeline parallelism",
        source=ENGINE_FILE_VERSION,
    )
    yield Reason(
        answer=Answer.CONDITIONAL,
        about="engine-file",
        text="only TensorRT-LLM up to 1.2 loads engines: the TensorRT backend is gone since",
        source=ENGINE_FILE_REMOVED,
    )


def _alternatives(combination: Combination) -> Iterator[Alternative]:
    """Combinations with one thing changed that are not impossible, of each kind those first that simply run."""
    for changed_ones, most in _changed(combination):
        judged = [(changed, text, _judge(changed).answer) for changed, text in changed_ones]
        possible = [one for wanted in (Answer.YES, Answer.CONDITIONAL) for one in judged if one[2] is wanted]
        for changed, text, answer in possible[:most]:
            yield Alternative(
                engine=changed.engine,
                gpu=changed.gpu,
                precision=changed.precision,
                kv_dtype=changed.kv_dtype,
                answer=answer,
                changes=text,
            )


def _changed(combination: Combination) -> Iterator[tuple[list[tuple[Combination, str]], int]]:
    """What could be changed, one kind after the other, and how many of a kind are shown."""
    if combination.engine_built_on is not None:
        text = "without an engine file: the checkpoint is loaded directly"
        yield [(replace(combination, engine_built_on=None), text)], 1
    if combination.kv_dtype is not KvDtype.AUTO:
        yield [(replace(combination, kv_dtype=KvDtype.AUTO), "KV cache as the model computes")], 1
    precisions = [precision for precision in _PROPOSED if precision is not combination.precision]
    yield [(replace(combination, precision=precision), f"precision {precision.value}") for precision in precisions], 3
    engines = [engine for engine in ENGINES if engine is not combination.engine]
    yield [(replace(combination, engine=engine), f"engine {engine.value}") for engine in engines], 2
    gpus = {find_capability(gpu.name) or 0: gpu.name for gpu in reversed(GPUS)}
    gpus.pop(find_capability(combination.gpu) or 0, None)
    yield [(replace(combination, gpu=gpus[capability]), f"GPU {gpus[capability]}") for capability in sorted(gpus)], 2
    if combination.engine is not EngineKind.LLAMACPP:
        embedded = replace(combination, engine=EngineKind.LLAMACPP, precision=Precision.GGUF_Q4, engine_built_on=None)
        yield [(embedded, "engine llamacpp and precision gguf-q4")], 1


def _unknown(about: str, text: str, source: str = "") -> Reason:
    return Reason(answer=Answer.CONDITIONAL, about=about, text=text, source=source)
