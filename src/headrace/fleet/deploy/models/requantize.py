"""Convert a GGUF file's quantised matrices to a format for which llama.cpp has faster CPU kernels.

Matrices of the slow formats become the target format; everything else (norms, embeddings of another format, vocabulary,
template) is copied as it is. Works block of rows by block of rows, so memory holds one matrix at most.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from headrace.fleet.deploy.models.failure import ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, Meter

CONVERTER_VERSION = 1
"""Part of the cache key: raise it when the output changes."""

CONVERTED_TYPES = frozenset({gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q5_1})
"""Formats without repacked kernels in llama.cpp's CPU backend. Measured for Q4_1: docs/decisions/0006."""

TARGETS: Mapping[str, tuple[gguf.GGMLQuantizationType, gguf.LlamaFileType]] = MappingProxyType(
    {
        "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
        "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
    }
)

BLOCK_BYTES = 8 << 20
"""Float32 bytes held while converting."""

_SKIPPED_KEYS = frozenset({gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE})


def requantize(source: Path, target: str, output: Path, meter: Meter) -> None:
    """Write `source` converted to `target` ("q8_0" or "q4_0") into `output`, which the caller commits or deletes.

    Raises: ModelFetchError where `source` is not GGUF or cannot be converted.
    """
    quantization, file_type = TARGETS[target]
    try:
        reader = gguf.GGUFReader(source)
    except (ValueError, OSError, KeyError, IndexError) as error:
        raise ModelFetchError(
            f"{source.name} is not a GGUF file ({error}): remove requantize from the model"
        ) from error
    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE)
    if architecture is None:
        raise ModelFetchError(f"{source.name} has no {gguf.Keys.General.ARCHITECTURE}: not a model file")
    writer = gguf.GGUFWriter(output, arch=architecture.contents(), endianess=reader.endianess)
    writer.data_alignment = reader.alignment
    _copy_fields(reader, writer)
    writer.add_file_type(file_type)
    plan = [(tensor, _type_after(tensor, quantization)) for tensor in reader.tensors]
    for tensor, kind in plan:
        rows = _shape_of(tensor, kind)
        writer.add_tensor_info(tensor.name, rows, np.dtype(np.uint8), int(np.prod(rows)), kind)
    _write(writer, plan, source.name, meter)


def _write(
    writer: gguf.GGUFWriter,
    plan: list[tuple[gguf.ReaderTensor, gguf.GGMLQuantizationType]],
    what: str,
    meter: Meter,
) -> None:
    total_bytes = sum(int(tensor.n_bytes) for tensor, _ in plan)
    meter.enter(FetchPhase.CONVERTING, what, total_bytes=total_bytes)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, kind in plan:
            writer.write_tensor_data(tensor.data if kind == tensor.tensor_type else _convert(tensor, kind))
            meter.add(int(tensor.n_bytes))
        writer.flush()
    finally:
        writer.close()


def _copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in _SKIPPED_KEYS:
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type)


def _type_after(tensor: gguf.ReaderTensor, target: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
    return target if tensor.tensor_type in CONVERTED_TYPES else tensor.tensor_type


def _shape_of(tensor: gguf.ReaderTensor, kind: gguf.GGMLQuantizationType) -> tuple[int, ...]:
    """Bytes shape (row-major, bytes of a row last) as the writer wants it for quantised matrices."""
    elements = [int(size) for size in reversed(tensor.shape.tolist())]
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    return (*elements[:-1], elements[-1] // block_elements * block_bytes)


def _convert(tensor: gguf.ReaderTensor, kind: gguf.GGMLQuantizationType) -> NDArray[np.uint8]:
    shape = _shape_of(tensor, kind)
    rows: NDArray[Any] = tensor.data.reshape(-1, tensor.data.shape[-1])
    converted = np.empty((rows.shape[0], shape[-1]), dtype=np.uint8)
    row_elements = int(tensor.shape[0])
    step = max(1, BLOCK_BYTES // (4 * row_elements))
    for start in range(0, rows.shape[0], step):
        floats = dequantize(rows[start : start + step], tensor.tensor_type)
        converted[start : start + step] = quantize(floats, kind)
    return converted.reshape(shape)


def size_after(source: Path, target: str) -> int:
    """Upper estimate of the converted file's size, for the disk check."""
    factor = 1.8 if target == "q8_0" else 1.0
    return int(os.path.getsize(source) * factor)
