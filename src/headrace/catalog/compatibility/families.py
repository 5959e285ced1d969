"""Model families: how to tell one by its name, what it is published in, and which engines have its architecture."""

import re
from dataclasses import dataclass, field

from headrace.catalog.compatibility.rules import SGLANG_TREE, TRTLLM_MATRIX, TRTLLM_TREE, VLLM_TREE
from headrace.catalog.compatibility.terms import Precision
from headrace.domain.endpoint import EngineKind

_TRTLLM_MODELS = TRTLLM_TREE + "00b6d5a25c30b4382d24fbdf52956d601b3ffd24/docs/source/models/supported-models.md"

SOURCES = {
    EngineKind.VLLM: VLLM_TREE + "vllm/model_executor/models/registry.py",
    EngineKind.SGLANG: SGLANG_TREE + "models",
    EngineKind.TENSORRT_LLM: _TRTLLM_MODELS,
    EngineKind.LLAMACPP: "https://pypi.org/project/gguf/0.19.0/ (MODEL_ARCH)",
}
"""Where it was read that an engine has an architecture."""

TRTLLM_RECIPES = TRTLLM_MATRIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models of one architecture."""

    name: str
    architecture: str
    """Class name in the checkpoint's config.json."""
    pattern: re.Pattern[str]
    """Found in the model's name, case ignored."""
    engines: frozenset[EngineKind]
    """Those whose registry has the architecture."""
    published_in: Precision | None = None
    """Where its makers publish it in something else than 16 bits."""
    has_block_scales: bool = False
    """Its FP8 has one scale per block of weights (DeepSeek's way), for which kernels are rarer."""
    trtllm_recipes: frozenset[Precision] | None = None
    """What NVIDIA's matrix marks for this family; None: it has no row there."""
    autodeploy: bool = field(default=False)
    """TensorRT-LLM has it through AutoDeploy only."""


_ALL = frozenset({EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM, EngineKind.LLAMACPP})
_P = Precision


def _family(
    name: str,
    architecture: str,
    pattern: str,
    *,
    published_in: Precision | None = None,
    has_block_scales: bool = False,
    recipes: tuple[Precision, ...] | None = None,
    autodeploy: bool = False,
    lacking: tuple[EngineKind, ...] = (),
) -> Family:
    return Family(
        name=name,
        architecture=architecture,
        pattern=re.compile(pattern, re.IGNORECASE),
        engines=_ALL - set(lacking),
        published_in=published_in,
        has_block_scales=has_block_scales,
        trtllm_recipes=None if recipes is None else frozenset(recipes),
        autodeploy=autodeploy,
    )


FAMILIES = (
    _family("Kimi-K2", "DeepseekV3ForCausalLM", r"kimi-k2(?![.\d])", published_in=_P.FP8, has_block_scales=True),
    _family(
        "DeepSeek-V3 and R1",
        "DeepseekV3ForCausalLM",
        r"deepseek-(v3(?!\.2)|r1(?!-distill))",
        published_in=_P.FP8,
        has_block_scales=True,
        recipes=(_P.NVFP4, _P.FP8),
    ),
    _family("gpt-oss", "GptOssForCausalLM", r"gpt-oss", published_in=_P.MXFP4, recipes=(_P.MXFP4,)),
    _family("Qwen3 MoE", "Qwen3MoeForCausalLM", r"qwen3-(coder-)?\d+b-a\d+b", recipes=None),
    _family(
        "Qwen3",
        "Qwen3ForCausalLM",
        r"qwen3-\d+(\.\d+)?b(?!-a)",
        recipes=(_P.NVFP4, _P.FP8, _P.AWQ_INT4, _P.GPTQ_INT4),
    ),
    _family(
        "Qwen2 and Qwen2.5",
        "Qwen2ForCausalLM",
        r"qwen2(\.5)?-(coder-|math-)?\d+(\.\d+)?b|qwq-32b|deepseek-r1-distill-qwen",
        recipes=(_P.NVFP4, _P.FP8, _P.AWQ_INT4, _P.GPTQ_INT4),
    ),
    _family(
        "Llama 3",
        "LlamaForCausalLM",
        r"llama-?3(\.[13])?-|llama-3\.2-[13]b|deepseek-r1-distill-llama",
        recipes=(_P.FP8,),
    ),
    _family("SmolLM2", "LlamaForCausalLM", r"smollm2"),
    _family("Mixtral", "MixtralForCausalLM", r"mixtral", recipes=(_P.NVFP4, _P.FP8)),
    _family("Mistral", "MistralForCausalLM", r"mistral-(7b|nemo|small-2[45]|large)", recipes=(_P.FP8, _P.AWQ_INT4)),
    _family("Gemma 3", "Gemma3ForCausalLM", r"gemma-3-(270m|1b)", recipes=(_P.FP8, _P.AWQ_INT4)),
    _family(
        "Gemma 3 with images",
        "Gemma3ForConditionalGeneration",
        r"gemma-3-(4b|12b|27b)",
        recipes=(_P.FP8, _P.AWQ_INT4),
    ),
    _family("Gemma 2", "Gemma2ForCausalLM", r"gemma-2-", lacking=(EngineKind.TENSORRT_LLM,)),
    _family("Phi-4", "Phi3ForCausalLM", r"phi-(4$|4-mini|3)"),
    _family("GLM-4.5 to 4.7", "Glm4MoeForCausalLM", r"glm-4\.[567](?!v|-flash)"),
    _family(
        "MiniMax-M2", "MiniMaxM2ForCausalLM", r"minimax-m2", published_in=_P.FP8, has_block_scales=True, autodeploy=True
    ),
)
"""Told apart in this order. Architectures: vLLM 0.33.0's registry, the model files of SGLang 0.5.23, TensorRT-LLM's
list of supported models, MODEL_ARCH of gguf 0.19.0 (DEEPSEEK2, GPT_OSS, QWEN2, QWEN3, QWEN3MOE, LLAMA, GEMMA3, PHI3,
GLM4_MOE, MINIMAXM2, GEMMA2; Mistral and Mixtral are LLAMA there)."""


def find_family(model: str) -> Family | None:
    """Return the family a model's name tells, whatever the organisation before the slash."""
    name = model.rsplit("/", 1)[-1]
    return next((family for family in FAMILIES if family.pattern.search(name)), None)
