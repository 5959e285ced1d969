"""Whether a model runs on an engine, GPU and precision, with the source of each answer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog.compatibility import (
    Answer,
    Combination,
    KvDtype,
    Precision,
    Verdict,
    find_capability,
    find_family,
    judge,
)
from headrace.catalog.compatibility.rules import RULES
from headrace.catalog.gpus import GPUS
from headrace.catalog.model_configs import MODEL_CONFIGS
from headrace.domain.endpoint import EngineKind

ASKED: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "combinations.yaml").read_text())

EXPECTED = {
    1: (Answer.YES, "llm_compressor/fp8.md"),
    2: (Answer.CONDITIONAL, "llm_compressor/fp8.md"),
    3: (Answer.CONDITIONAL, "quantization/fp8_utils.py"),
    4: (Answer.NO, "features/quantization.md"),
    5: (Answer.YES, "utils/nvfp4_utils.py"),
    6: (Answer.CONDITIONAL, "utils/marlin_utils_fp4.py"),
    7: (Answer.NO, "features/quantization.md"),
    8: (Answer.CONDITIONAL, "quantization/fp4_utils.py"),
    9: (Answer.CONDITIONAL, "oracle/mxfp4.py"),
    10: (Answer.CONDITIONAL, "oracle/mxfp4.py"),
    11: (Answer.YES, "llm_compressor/int4.md"),
    12: (Answer.NO, "gpu.cuda.inc.md"),
    13: (Answer.CONDITIONAL, "load_model_utils.py"),
    14: (Answer.CONDITIONAL, "supported-hardware.md"),
    15: (Answer.YES, "docs/build.md"),
    16: (Answer.NO, "GGMLQuantizationType"),
    17: (Answer.NO, "llm_compressor/int8_w8a8.md"),
    18: (Answer.CONDITIONAL, "backends/flashinfer.py"),
    19: (Answer.YES, "quantization/fp8_utils.py"),
    20: (Answer.NO, "tensorrt/10.16.1/getting-started/support-matrix.html"),
}
"""By number: the answer, and the end of the source that decides it."""


def combination_of(asked: dict[str, Any]) -> Combination:
    return Combination(
        model=asked["model"],
        engine=EngineKind(asked["engine"]),
        gpu=asked["gpu"],
        precision=Precision(asked["precision"]),
        kv_dtype=KvDtype(asked.get("kv_dtype", "auto")),
        engine_built_on=asked.get("engine_built_on"),
    )


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: str(asked["id"]))
def test_each_of_the_twenty_is_answered_with_the_source_that_decides(asked: dict[str, Any]) -> None:
    """The twenty combinations written down beforehand have an answer that can be looked up."""
    verdict = judge(combination_of(asked))
    answer, source_end = EXPECTED[asked["id"]]
    assert verdict.answer is answer
    deciding = [reason for reason in verdict.reasons if reason.answer is answer]
    assert any(source_end in reason.source for reason in deciding)
    assert [reason.text for reason in verdict.reasons if not reason.source.startswith("https://")] == []


def test_twenty_combinations_were_asked() -> None:
    """None was left out afterwards."""
    assert sorted(asked["id"] for asked in ASKED) == list(range(1, 21)) == sorted(EXPECTED)


@pytest.mark.parametrize("asked", [asked for asked in ASKED if EXPECTED[asked["id"]][0] is Answer.NO])
def test_an_impossible_one_says_what_would_work(asked: dict[str, Any]) -> None:
    """A refusal comes with combinations that are not refused, each with one thing changed."""
    verdict = judge(combination_of(asked))
    assert verdict.instead
    for alternative in verdict.instead:
        again = judge(
            replace(
                combination_of(asked),
                engine=alternative.engine,
                gpu=alternative.gpu,
                precision=alternative.precision,
                kv_dtype=alternative.kv_dtype,
                engine_built_on=None if "engine" in alternative.changes else asked.get("engine_built_on"),
            )
        )
        assert again.answer is alternative.answer is not Answer.NO


def test_what_runs_needs_no_alternatives() -> None:
    """Only a refusal is followed by proposals."""
    assert judge(combination_of(ASKED[0])).instead == ()
    assert judge(combination_of(ASKED[1])).instead == ()


def vllm(gpu: str, precision: Precision, kv_dtype: KvDtype = KvDtype.AUTO) -> Verdict:
    return judge(
        Combination(
            model="Qwen/Qwen2.5-7B-Instruct", engine=EngineKind.VLLM, gpu=gpu, precision=precision, kv_dtype=kv_dtype
        )
    )


@pytest.mark.parametrize(
    ("gpu", "answer"),
    [("sm74", Answer.NO), ("sm75", Answer.CONDITIONAL), ("sm88", Answer.CONDITIONAL), ("sm89", Answer.YES)],
)
def test_a_bound_holds_at_its_edge(gpu: str, answer: Answer) -> None:
    """FP8 is native from compute capability 8.9 on, weight-only from 7.5 on, and below vLLM does not run."""
    assert vllm(gpu, Precision.FP8).answer is answer


def test_types_of_weights_and_of_the_kv_cache_that_are_spelt_alike_are_told_apart() -> None:
    """`fp8` of the KV cache is judged by attention kernels, not by those of the weights."""
    verdict = vllm("l4", Precision.BF16, KvDtype.FP8)
    (kv,) = [reason for reason in verdict.reasons if reason.about == "kv-cache"]
    assert "KV cache" in kv.text


def test_block_scaled_fp8_needs_its_own_kernels() -> None:
    """TensorRT-LLM has FP8 on Ada, but not the block-scaled FP8 that DeepSeek-V3 is published in."""

    def answer(model: str, gpu: str) -> Answer:
        trtllm = EngineKind.TENSORRT_LLM
        return judge(Combination(model=model, engine=trtllm, gpu=gpu, precision=Precision.FP8)).answer

    assert answer("Qwen/Qwen2.5-7B-Instruct", "l40s") is Answer.YES
    assert answer("deepseek-ai/DeepSeek-V3", "l40s") is Answer.NO
    assert answer("deepseek-ai/DeepSeek-V3", "h20") is Answer.YES


def test_an_engine_file_stays_with_its_gpu() -> None:
    """A TensorRT engine of another GPU of the same capability is a condition, of another capability a refusal."""

    def answer(built_on: str, gpu: str) -> Answer:
        return judge(
            Combination(
                model="Qwen/Qwen2.5-32B-Instruct",
                engine=EngineKind.TENSORRT_LLM,
                gpu=gpu,
                precision=Precision.FP8,
                engine_built_on=built_on,
            )
        ).answer

    assert answer("h100", "h20") is Answer.CONDITIONAL
    assert answer("h100", "h100") is Answer.CONDITIONAL
    assert answer("l40s", "h100") is Answer.NO


@pytest.mark.parametrize(
    ("gpu", "model", "engine", "about"),
    [
        ("gtx-2060-ti", "Qwen/Qwen2.5-7B-Instruct", EngineKind.VLLM, "engine"),
        ("h100", "acme/unheard-of-9b", EngineKind.VLLM, "model"),
        ("h100", "Qwen/Qwen2.5-7B-Instruct", EngineKind.OPENAI, "engine"),
    ],
)
def test_what_is_not_known_is_no_yes(gpu: str, model: str, engine: EngineKind, about: str) -> None:
    """A GPU, model or engine that no table has makes the answer conditional and says so."""
    verdict = judge(Combination(model=model, engine=engine, gpu=gpu, precision=Precision.BF16))
    assert verdict.answer is Answer.CONDITIONAL
    assert [reason.about for reason in verdict.reasons if reason.answer is Answer.CONDITIONAL] == [about]


@pytest.mark.parametrize(
    ("name", "capability"),
    [("h100", 90), ("4090", 89), ("sm75", 75), ("SM_120", 120), ("8.9", 89), ("sm90", 90), ("tesla", None), ("", None)],
)
def test_a_gpu_is_named_or_its_capability_given(name: str, capability: int | None) -> None:
    """GPUs outside the catalogue are judged by their compute capability."""
    assert find_capability(name) == capability


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("Qwen/Qwen2.5-32B-Instruct", "Qwen2 and Qwen2.5"),
        ("Qwen/Qwen3-30B-A3B", "Qwen3 MoE"),
        ("Qwen/Qwen3-8B", "Qwen3"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3 and R1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen2 and Qwen2.5"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama 3"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama 3"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", None),
        ("openai/gpt-oss-20b", "gpt-oss"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral"),
        ("deepseek-ai/DeepSeek-V3.2", None),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2"),
    ],
)
def test_a_family_is_told_by_the_name(model: str, family: str | None) -> None:
    """Distilled models belong to the family they were distilled into; what is not listed is not guessed."""
    found = find_family(model)
    assert (found and found.name) == family


@pytest.mark.parametrize("model", [config.name for config in MODEL_CONFIGS])
def test_every_model_of_the_catalogue_has_a_family(model: str) -> None:
    """What can be sized can be judged as well."""
    assert find_family(model) is not None


def test_an_engine_without_the_architecture_is_a_refusal() -> None:
    """Gemma 2 is in no list of TensorRT-LLM; the engines that have it are proposed."""
    verdict = judge(
        Combination(model="google/gemma-2-9b-it", engine=EngineKind.TENSORRT_LLM, gpu="h100", precision=Precision.BF16)
    )
    assert verdict.answer is Answer.NO
    assert {alternative.changes for alternative in verdict.instead} >= {"engine vllm", "engine sglang"}


def test_every_fact_has_a_source() -> None:
    """No row of the matrix stands without the place where it was read."""
    assert [rule.text for rule in RULES if not rule.source.startswith("https://")] == []
    assert all(rule.least < rule.below for rule in RULES)


@given(
    st.sampled_from(list(EngineKind)),
    st.one_of(st.sampled_from([gpu.name for gpu in GPUS]), st.text(max_size=6)),
    st.sampled_from(list(Precision)),
    st.sampled_from(list(KvDtype)),
    st.sampled_from(["Qwen/Qwen2.5-7B-Instruct", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "x/y"]),
    st.sampled_from([None, "h100", "nonsense"]),
)
def test_every_question_is_answered(
    engine: EngineKind, gpu: str, precision: Precision, kv_dtype: KvDtype, model: str, built_on: str | None
) -> None:
    """Whatever is asked, there is an answer with at least one reason, and no proposal is itself impossible."""
    verdict = judge(
        Combination(
            model=model, engine=engine, gpu=gpu, precision=precision, kv_dtype=kv_dtype, engine_built_on=built_on
        )
    )
    assert verdict.reasons
    assert all(alternative.answer is not Answer.NO for alternative in verdict.instead)
