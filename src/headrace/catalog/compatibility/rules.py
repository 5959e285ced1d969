"""What each engine can do on each compute capability: one row per fact, with its source. Read, not measured.

Rows of one engine and subject are tried in order; the first whose range holds the GPU's capability answers. What no
row covers is answered with "conditional: not known".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.catalog.compatibility.terms import Answer, KvDtype, Precision
from headrace.domain.endpoint import EngineKind

VLLM_TREE = "https://github.com/vllm-project/vllm/blob/v0.33.0/"
SGLANG_TREE = "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/"
TRTLLM_TREE = "https://github.com/NVIDIA/TensorRT-LLM/blob/"
LLAMACPP_TREE = "https://github.com/ggml-org/llama.cpp/blob/"

_VLLM_MATRIX = VLLM_TREE + "docs/features/quantization/README.md"
_VLLM_FP8 = VLLM_TREE + "docs/features/quantization/llm_compressor/fp8.md"
_VLLM_INT8 = VLLM_TREE + "docs/features/quantization/llm_compressor/int8_w8a8.md"
_VLLM_INT4 = VLLM_TREE + "docs/features/quantization/llm_compressor/int4.md"
_VLLM_FP4_MARLIN = VLLM_TREE + "vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py"
_VLLM_MXFP4 = VLLM_TREE + "vllm/model_executor/layers/quantization/mxfp4.py"
_VLLM_CUDA = VLLM_TREE + "vllm/platforms/cuda.py"
_VLLM_TRITON = VLLM_TREE + "vllm/v1/attention/backends/triton_attn.py"
_VLLM_FLASHINFER = VLLM_TREE + "vllm/v1/attention/backends/flashinfer.py"
_SGLANG_FP8 = SGLANG_TREE + "layers/quantization/fp8_utils.py"
_SGLANG_FP4 = SGLANG_TREE + "layers/quantization/fp4_utils.py"
_SGLANG_LOAD = SGLANG_TREE + "model_executor/model_runner_components/load_model_utils.py"
_SGLANG_KV = SGLANG_TREE + "arg_groups/fields/model.py"
_SGLANG_INT8 = (
    "https://github.com/sgl-project/sglang/blob/1f2840c9c9f6e7bf88699a30ef2ebcff31658ae8/"
    "sgl-kernel/csrc/gemm/int8_gemm_kernel.cu"
)
TRTLLM_MATRIX = TRTLLM_TREE + "09d4c79ba941a5c2c62c878c3572c0dcc8b85efa/docs/source/features/quantization.md"
_TRTLLM_HARDWARE = TRTLLM_TREE + "8f2e263c3c4c3069e463e0ea7897a9fdc44f8adf/docs/source/supported-hardware.md"
_LLAMACPP_BUILD = LLAMACPP_TREE + "00fd518151fe962fe5d7ad7892b6cf1b38d971ae/docs/build.md"
_LLAMACPP_TYPES = "https://pypi.org/project/gguf/0.19.0/ (GGMLQuantizationType)"
_LLAMACPP_CACHE = LLAMACPP_TREE + "53dd4beb76787b6e8d7be86332bfd417880ebcd6/examples/server/README.md"

YES, CONDITIONAL, NO = Answer.YES, Answer.CONDITIONAL, Answer.NO
ANY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One fact about one engine."""

    engine: EngineKind
    about: str
    """`engine` as such, `precision` of the weights or `kv-cache`."""
    subjects: frozenset[str]
    """Precisions or KV types; empty where it is about the engine. Some are spelt alike, so `about` tells them apart."""
    least: int
    """Lowest compute capability it holds for, as 10 * major + minor."""
    below: int
    """First capability it no longer holds for."""
    answer: Answer
    text: str
    source: str


def _about(subjects: Sequence[Precision] | Sequence[KvDtype]) -> str:
    if not subjects:
        return "engine"
    return "kv-cache" if isinstance(subjects[0], KvDtype) else "precision"


def _rules(
    engine: EngineKind,
    *rows: tuple[Sequence[Precision] | Sequence[KvDtype], int, int, Answer, str, str],
) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            engine=engine,
            about=_about(subjects),
            subjects=frozenset(subject.value for subject in subjects),
            least=least,
            below=below,
            answer=answer,
            text=text,
            source=source,
        )
        for subjects, least, below, answer, text, source in rows
    )


_ENGINE: tuple[Precision, ...] = ()
_INT4 = (Precision.AWQ_INT4, Precision.GPTQ_INT4)
_GGUF = (Precision.GGUF_Q4, Precision.GGUF_Q8)
_HALF = (Precision.BF16, Precision.FP16)

VLLM_RULES = _rules(
    EngineKind.VLLM,
    (
        _ENGINE,
        0,
        75,
        NO,
        "vLLM's builds need compute capability 7.5 or higher",
        VLLM_TREE + "docs/getting_started/installation/gpu.cuda.inc.md",
    ),
    ((Precision.BF16,), 0, 80, NO, "bfloat16 needs compute capability 8.0; vLLM refuses it below", _VLLM_CUDA),
    ((Precision.BF16,), 80, ANY, YES, "bfloat16 is native from compute capability 8.0", _VLLM_CUDA),
    ((Precision.FP16,), 60, ANY, YES, "float16 is native", _VLLM_CUDA),
    ((Precision.FP8,), 89, ANY, YES, "FP8 arithmetic (W8A8) is native on Ada, Hopper and Blackwell", _VLLM_FP8),
    (
        (Precision.FP8,),
        75,
        89,
        CONDITIONAL,
        "no FP8 arithmetic below 8.9: Marlin kernels use the weights as W8A16, which saves memory but no computation",
        _VLLM_FP8,
    ),
    ((Precision.INT8,), 100, ANY, NO, "INT8 W8A8 has no kernel from compute capability 10.0 on", _VLLM_INT8),
    ((Precision.INT8,), 75, 100, YES, "INT8 W8A8 runs on Turing, Ampere, Ada and Hopper", _VLLM_INT8),
    ((Precision.AWQ_INT4,), 0, 75, NO, "AWQ kernels need compute capability 7.5 (Turing)", _VLLM_MATRIX),
    (_INT4, 80, ANY, YES, "4-bit weights run on Marlin kernels", _VLLM_INT4),
    (_INT4, 75, 80, YES, "4-bit weights run on Turing", _VLLM_MATRIX),
    (
        (Precision.NVFP4,),
        100,
        ANY,
        YES,
        "FP4 arithmetic is native on Blackwell",
        VLLM_TREE + "vllm/model_executor/layers/quantization/utils/nvfp4_utils.py",
    ),
    (
        (Precision.NVFP4,),
        75,
        100,
        CONDITIONAL,
        (
            "no FP4 arithmetic below Blackwell: Marlin kernels use the weights as W4A16, which saves memory but no "
            "computation"
        ),
        _VLLM_FP4_MARLIN,
    ),
    ((Precision.MXFP4,), 100, ANY, YES, "FP4 arithmetic is native on Blackwell", _VLLM_MXFP4),
    (
        (Precision.MXFP4,),
        80,
        100,
        CONDITIONAL,
        "weights stay in MXFP4 and are computed in bfloat16 (Triton, FlashInfer or Marlin kernels)",
        VLLM_TREE + "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py",
    ),
    ((Precision.MXFP4,), 0, 80, NO, "Marlin's MXFP4 kernels need compute capability 8.0", _VLLM_MATRIX),
    (
        (Precision.BITSANDBYTES,),
        75,
        ANY,
        CONDITIONAL,
        "needs the package vllm-bnb-plugin beside vLLM",
        VLLM_TREE + "docs/features/quantization/bnb.md",
    ),
    (
        _GGUF,
        75,
        ANY,
        CONDITIONAL,
        "needs the package vllm-gguf-plugin, and vLLM calls GGUF highly experimental and slow",
        VLLM_TREE + "docs/features/quantization/gguf.md",
    ),
    (
        (KvDtype.FP8,),
        89,
        ANY,
        YES,
        "an FP8 KV cache runs on Triton and FlashInfer attention, on FlashAttention 3 on Hopper",
        _VLLM_TRITON,
    ),
    (
        (KvDtype.FP8,),
        80,
        89,
        CONDITIONAL,
        (
            "below 8.9 Triton attention refuses an FP8 KV cache and FlashAttention lacks it: FlashInfer is needed "
            "(--attention-backend FLASHINFER)"
        ),
        _VLLM_FLASHINFER,
    ),
    ((KvDtype.FP8,), 0, 80, NO, "no attention backend has an FP8 KV cache below 8.0", _VLLM_FLASHINFER),
    (
        (KvDtype.NVFP4,),
        100,
        110,
        CONDITIONAL,
        "an NVFP4 KV cache needs FlashInfer with TensorRT-LLM attention kernels",
        _VLLM_FLASHINFER,
    ),
    (
        (KvDtype.NVFP4,),
        0,
        100,
        CONDITIONAL,
        "an NVFP4 KV cache is for compute capability 10.x; elsewhere only FlashInfer's FA2 path may have it",
        _VLLM_FLASHINFER,
    ),
    ((KvDtype.INT8,), 75, ANY, CONDITIONAL, "only as int8_per_token_head on Triton attention", _VLLM_TRITON),
)

SGLANG_RULES = _rules(
    EngineKind.SGLANG,
    (_ENGINE, 0, 75, NO, "SGLang refuses GPUs below compute capability 7.5", _SGLANG_LOAD),
    (
        (Precision.BF16,),
        75,
        80,
        CONDITIONAL,
        (
            "SGLang computes in float16 instead, with a line in its log only: outputs may overflow where a model was "
            "trained in bfloat16"
        ),
        _SGLANG_LOAD,
    ),
    (_HALF, 75, ANY, YES, "16-bit arithmetic is native", _SGLANG_LOAD),
    ((Precision.FP8,), 90, ANY, YES, "FP8 arithmetic is native (CUDA 12.0 or newer)", _SGLANG_FP8),
    ((Precision.FP8,), 89, 90, YES, "FP8 arithmetic is native on Ada (CUDA 12.4 or newer)", _SGLANG_FP8),
    (
        (Precision.FP8,),
        80,
        89,
        CONDITIONAL,
        (
            "no FP8 arithmetic below 8.9: SGLang switches to Marlin by itself (W8A16), which saves memory but no "
            "computation"
        ),
        _SGLANG_FP8,
    ),
    ((Precision.FP8,), 0, 80, NO, "neither FP8 arithmetic nor the Marlin fallback below 8.0", _SGLANG_FP8),
    ((Precision.INT8,), 91, ANY, NO, "the INT8 kernel has no path above compute capability 9.0", _SGLANG_INT8),
    ((Precision.INT8,), 80, 91, YES, "INT8 W8A8 runs on Ampere, Ada and Hopper", _SGLANG_INT8),
    ((Precision.INT8,), 75, 80, CONDITIONAL, "on Turing only with float16 outputs", _SGLANG_INT8),
    (
        (Precision.AWQ_INT4,),
        80,
        ANY,
        YES,
        "AWQ runs on Marlin kernels",
        SGLANG_TREE + "layers/quantization/awq/awq.py",
    ),
    (
        (Precision.AWQ_INT4,),
        75,
        80,
        YES,
        "AWQ's own kernels need 7.5; Marlin's need 8.0",
        SGLANG_TREE + "layers/quantization/awq/awq.py",
    ),
    (
        (Precision.GPTQ_INT4,),
        75,
        ANY,
        YES,
        "GPTQ's kernels need 6.0; Marlin's, which are faster, 8.0",
        SGLANG_TREE + "layers/quantization/gptq/gptq.py",
    ),
    ((Precision.NVFP4,), 100, ANY, YES, "FP4 arithmetic is native on Blackwell", _SGLANG_FP4),
    (
        (Precision.NVFP4,),
        80,
        100,
        CONDITIONAL,
        "no FP4 arithmetic below Blackwell: SGLang takes Marlin (W4A16), which saves memory but no computation",
        _SGLANG_FP4,
    ),
    ((Precision.NVFP4,), 0, 80, NO, "NVFP4 needs compute capability 8.0 even for weights alone", _SGLANG_FP4),
    (
        (Precision.MXFP4,),
        100,
        ANY,
        YES,
        "FP4 arithmetic is native on Blackwell",
        SGLANG_TREE + "layers/quantization/mxfp4.py",
    ),
    (
        (Precision.MXFP4,),
        80,
        100,
        CONDITIONAL,
        "weights stay in MXFP4 and are computed in 16 bits",
        SGLANG_TREE + "layers/quantization/mxfp4.py",
    ),
    (
        (Precision.MXFP4,),
        0,
        80,
        NO,
        "MXFP4 needs compute capability 8.0",
        SGLANG_TREE + "layers/quantization/mxfp4.py",
    ),
    (
        (Precision.BITSANDBYTES,),
        75,
        ANY,
        CONDITIONAL,
        "needs the package bitsandbytes",
        SGLANG_TREE + "layers/quantization/bitsandbytes.py",
    ),
    (
        _GGUF,
        75,
        ANY,
        CONDITIONAL,
        "read through its GGUF loader; not every tensor type has a kernel",
        SGLANG_TREE + "layers/quantization/gguf.py",
    ),
    ((KvDtype.FP8,), 89, ANY, YES, "an FP8 KV cache is supported (CUDA 11.8 or newer)", _SGLANG_KV),
    (
        (KvDtype.FP8,),
        80,
        89,
        CONDITIONAL,
        "below 8.9 the attention backend decides: try fp8_e5m2 first, since Triton's e4m3 needs 8.9",
        _SGLANG_KV,
    ),
    (
        (KvDtype.NVFP4,),
        100,
        ANY,
        CONDITIONAL,
        "an NVFP4 KV cache needs CUDA 12.8 and PyTorch 2.8 or newer",
        _SGLANG_KV,
    ),
    ((KvDtype.NVFP4,), 0, 100, NO, "FP4 arithmetic exists on Blackwell only", _SGLANG_KV),
    ((KvDtype.INT8,), 0, ANY, NO, "SGLang has no INT8 KV cache", _SGLANG_KV),
)

TENSORRT_LLM_RULES = _rules(
    EngineKind.TENSORRT_LLM,
    (_ENGINE, 0, 80, NO, "TensorRT-LLM supports Ampere and newer", _TRTLLM_HARDWARE),
    (
        _ENGINE,
        86,
        88,
        CONDITIONAL,
        "NVIDIA lists the A100 alone of Ampere as supported: this GPU is not tested by NVIDIA",
        _TRTLLM_HARDWARE,
    ),
    (_HALF, 80, ANY, YES, "16-bit arithmetic is native", _TRTLLM_HARDWARE),
    ((Precision.FP8,), 89, ANY, YES, "FP8 per tensor runs on Ada, Hopper and Blackwell", TRTLLM_MATRIX),
    (
        (Precision.FP8,),
        0,
        89,
        NO,
        "FP8 needs Ada or newer; TensorRT-LLM has no weight-only fallback for it",
        TRTLLM_MATRIX,
    ),
    ((Precision.NVFP4,), 100, ANY, YES, "NVFP4 runs on Blackwell", TRTLLM_MATRIX),
    (
        (Precision.NVFP4,),
        0,
        100,
        NO,
        "NVFP4 needs Blackwell; TensorRT-LLM has no weight-only fallback for it",
        TRTLLM_MATRIX,
    ),
    ((Precision.MXFP4,), 100, ANY, YES, "MXFP4 runs on Blackwell", TRTLLM_MATRIX),
    ((Precision.MXFP4,), 0, 100, NO, "NVIDIA's matrix lists MXFP4 for Blackwell only", TRTLLM_MATRIX),
    (_INT4, 80, 100, YES, "W4A16 runs on Ampere, Ada and Hopper", TRTLLM_MATRIX),
    (_INT4, 100, ANY, NO, "NVIDIA's matrix lists no W4A16 recipe for Blackwell", TRTLLM_MATRIX),
    ((Precision.INT8,), 0, ANY, NO, "no INT8 recipe in the PyTorch backend", TRTLLM_MATRIX),
    (
        (Precision.BITSANDBYTES, *_GGUF),
        0,
        ANY,
        NO,
        "not among its recipes: it reads Hugging Face and ModelOpt checkpoints",
        TRTLLM_MATRIX,
    ),
    ((KvDtype.FP8,), 80, ANY, YES, "an FP8 KV cache runs on Ampere and newer", TRTLLM_MATRIX),
    (
        (KvDtype.NVFP4,),
        100,
        ANY,
        YES,
        "kv_cache_dtype nvfp4 on Blackwell",
        TRTLLM_TREE
        + "029e223d527d2ff453062555f7aef86517a2847c/tests/unittest/api_stability/references/trtllm_serve_cli.yaml",
    ),
    ((KvDtype.NVFP4,), 0, 100, NO, "FP4 arithmetic exists on Blackwell only", TRTLLM_MATRIX),
    ((KvDtype.INT8,), 0, ANY, NO, "kv_cache_dtype is auto, fp8 or nvfp4", TRTLLM_MATRIX),
)

LLAMACPP_RULES = _rules(
    EngineKind.LLAMACPP,
    (_ENGINE, 50, ANY, YES, "a CUDA build runs on all CUDA GPUs", _LLAMACPP_BUILD),
    (_GGUF, 0, ANY, YES, "GGUF is its own format", _LLAMACPP_TYPES),
    (_HALF, 0, ANY, CONDITIONAL, "as a GGUF file of type F16 or BF16, converted from the checkpoint", _LLAMACPP_TYPES),
    ((Precision.MXFP4,), 0, ANY, CONDITIONAL, "as a GGUF file of type MXFP4", _LLAMACPP_TYPES),
    (
        (Precision.NVFP4,),
        0,
        ANY,
        CONDITIONAL,
        "as a GGUF file of type NVFP4, not as a ModelOpt checkpoint; whether the GPU computes in FP4 was not read",
        _LLAMACPP_TYPES,
    ),
    (
        (Precision.FP8, Precision.INT8, *_INT4, Precision.BITSANDBYTES),
        0,
        ANY,
        NO,
        "llama.cpp reads GGUF files only, and GGUF has no such type",
        _LLAMACPP_TYPES,
    ),
    ((KvDtype.INT8,), 0, ANY, YES, "a KV cache of type q8_0", _LLAMACPP_CACHE),
    ((KvDtype.FP8, KvDtype.NVFP4), 0, ANY, NO, "its KV types are f32, f16, bf16 and q4 to q8", _LLAMACPP_CACHE),
)

RULES = (*VLLM_RULES, *SGLANG_RULES, *TENSORRT_LLM_RULES, *LLAMACPP_RULES)

ENGINE_FILE_HARDWARE = "https://docs.nvidia.com/deeplearning/tensorrt/10.16.1/getting-started/support-matrix.html"
"""Without hardware compatibility mode, engines are not portable across GPU architectures, nor across platforms."""

ENGINE_FILE_VERSION = (
    "https://docs.nvidia.com/deeplearning/tensorrt/10.16.1/inference-library/version-compatibility.html"
)
"""By default an engine runs only with the TensorRT version that built it."""

ENGINE_FILE_REMOVED = (
    TRTLLM_TREE + "335107a7646f9682c5e24103b11fc2b3e2c8362f/docs/source/legacy/tensorrt-backend-removal.md"
)
"""TensorRT-LLM's main branch no longer has the TensorRT backend: checkpoints are loaded directly."""
