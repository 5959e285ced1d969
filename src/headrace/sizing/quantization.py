"""From a checkpoint's `quantization_config` to bytes a weight, with the scales that come with it."""

from collections.abc import Mapping
from typing import Any, cast

from headrace.sizing.architecture import UnknownArchitectureError, WeightFormat

PLAIN = {"bfloat16": ("bf16", 2.0), "float16": ("fp16", 2.0), "float32": ("fp32", 4.0)}
"""torch dtype -> name and bytes."""

SCALE_BYTES = 2
"""Group scales of AWQ and GPTQ are fp16. Source: the AutoAWQ and GPTQ checkpoint layouts (`scales`, `qzeros`)."""
BLOCK_SCALE_BYTES = 4
"""`weight_scale_inv` of block-scaled FP8 is float32. Source: deepseek-ai/DeepSeek-V3 README_WEIGHTS.md."""
NVFP4_BYTES = 0.5 + 1 / 16
"""4 bits and one FP8 scale for each 16 values. Source: NVIDIA's NVFP4 format."""
MXFP4_BYTES = 0.5 + 1 / 32
"""4 bits and one E8M0 scale for each 32 values. Source: OCP microscaling formats v1.0."""
BITSANDBYTES_BYTES = 0.5 + 4 / 64
"""NF4 with one float32 absmax for each 64 values; double quantization takes a little less. Source: QLoRA section 3."""


def read_weight_format(config: Mapping[str, Any], dtype: str) -> WeightFormat:
    """Return the format of a checkpoint from its whole config.json (the text model's part may be inside).

    Raises: UnknownArchitectureError.
    """
    if dtype not in PLAIN:
        raise UnknownArchitectureError(f"torch_dtype {dtype} is none of {', '.join(PLAIN)}")
    name, plain_bytes = PLAIN[dtype]
    found: Any = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(found, Mapping):
        return WeightFormat(name=name, matrix_bytes=plain_bytes, plain_bytes=plain_bytes)
    said = cast("Mapping[str, Any]", found)
    method = str(said.get("quant_method", said.get("quant_algo", ""))).lower()
    if method in ("awq", "gptq", "auto-round"):
        return _integer("awq" if method == "awq" else "gptq", said, plain_bytes)
    if method == "compressed-tensors":
        return _compressed(said, plain_bytes)
    if method in ("fp8", "fbgemm_fp8"):
        return WeightFormat(name="fp8", matrix_bytes=1 + _block_scale(said), plain_bytes=plain_bytes)
    if method == "mxfp4":
        return WeightFormat(name="mxfp4", matrix_bytes=MXFP4_BYTES, plain_bytes=plain_bytes, experts_only=True)
    if method in ("modelopt", "modelopt_fp4", "nvfp4"):
        is_fp4 = "FP4" in str(said.get("quant_algo", method)).upper()
        size = NVFP4_BYTES if is_fp4 else 1.0
        return WeightFormat(name="nvfp4" if is_fp4 else "fp8", matrix_bytes=size, plain_bytes=plain_bytes)
    if method == "bitsandbytes":
        size = 1.0 if said.get("load_in_8bit") else BITSANDBYTES_BYTES
        return WeightFormat(name="bitsandbytes", matrix_bytes=size, plain_bytes=plain_bytes)
    raise UnknownArchitectureError(f"quant_method {method or '(none)'} is not known")


def _integer(name: str, said: Mapping[str, Any], plain_bytes: float) -> WeightFormat:
    bits = int(said.get("bits") or said.get("w_bit") or 4)
    group = int(said.get("group_size") or said.get("q_group_size") or 128)
    size = bits / 8 + _group_bytes(bits, group)
    return WeightFormat(name="int8" if bits == 8 else f"{name}-int4", matrix_bytes=size, plain_bytes=plain_bytes)


def _group_bytes(bits: int, group: int) -> float:
    """A scale and a zero point for each group; -1 is one group a row, which is next to nothing."""
    return 0.0 if group <= 0 else (SCALE_BYTES + bits / 8) / group


def _compressed(said: Mapping[str, Any], plain_bytes: float) -> WeightFormat:
    groups = cast("Mapping[str, Any]", said.get("config_groups") or {})
    empty: dict[str, Any] = {}
    first = cast("Mapping[str, Any]", next(iter(groups.values()), empty))
    weights = cast("Mapping[str, Any]", first.get("weights") or {})
    bits, kind = int(weights.get("num_bits") or 0), str(weights.get("type", ""))
    group = int(weights.get("group_size") or -1)
    if bits == 8:
        return WeightFormat(name="fp8" if kind == "float" else "int8", matrix_bytes=1.0, plain_bytes=plain_bytes)
    if bits == 4 and kind == "float":
        return WeightFormat(name="nvfp4", matrix_bytes=NVFP4_BYTES, plain_bytes=plain_bytes)
    if bits == 4:
        size = 0.5 + _group_bytes(4, group)
        return WeightFormat(name="gptq-int4", matrix_bytes=size, plain_bytes=plain_bytes)
    raise UnknownArchitectureError(f"compressed-tensors with {bits}-bit {kind or 'unnamed'} weights is not known")


def _block_scale(said: Mapping[str, Any]) -> float:
    block = said.get("weight_block_size")
    return BLOCK_SCALE_BYTES / (block[0] * block[1]) if block else 0.0
