"""Read a GGUF file's header into an `Architecture`: its numbers, and the exact size of its tensors, not the tensors.

Source: the GGUF specification in ggml's docs/gguf.md (version 3, little endian).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headrace.sizing.architecture import (
    Architecture,
    CacheLayers,
    LayerKind,
    Parameters,
    UnknownArchitectureError,
    WeightFormat,
)

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type number -> struct code."""
_STRING, _ARRAY = 8, 9
_LONGEST_STRING_BYTES = 1 << 24
_MOST_ENTRIES = 1 << 20
_DEFAULT_ALIGNMENT = 32

Value = int | float | bool | str | tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What stands before the tensors."""

    fields: Mapping[str, Value]
    """Scalars, strings and arrays of numbers; arrays of strings (the vocabulary) are left out but counted."""
    array_lengths: Mapping[str, int]
    parameters: int
    tensor_bytes: int
    """From the start of the first tensor to the end of the file."""


def read_gguf(path: Path) -> Architecture:
    """Return the architecture of a GGUF file.

    Raises: UnknownArchitectureError where it is no GGUF file or lacks what sizing needs; OSError.
    """
    return architecture_of(read_gguf_header(path))


def read_gguf_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file.

    Raises: UnknownArchitectureError, OSError.
    """
    try:
        with path.open("rb") as file:
            return _read_header(file, path.stat().st_size)
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise UnknownArchitectureError(f"{path.name}: the GGUF header is broken: {error}") from error


def _read_header(file: BinaryIO, file_bytes: int) -> GgufHeader:
    magic, version, tensors, entries = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version < 2 or max(tensors, entries) > _MOST_ENTRIES:
        raise UnknownArchitectureError("not a GGUF file of version 2 or 3")
    fields: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(entries):
        name = _read_string(file)
        (kind,) = struct.unpack("<I", file.read(4))
        if kind == _ARRAY:
            element, count = struct.unpack("<IQ", file.read(12))
            lengths[name] = count
            if (values := _read_array(file, element, count)) is not None:
                fields[name] = values
        else:
            fields[name] = _read_scalar(file, kind)
    parameters = 0
    for _ in range(tensors):
        _read_string(file)
        (dimensions,) = struct.unpack("<I", file.read(4))
        size = 1
        for length in struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions)):
            size *= length
        parameters += size
        file.read(12)  # type and offset
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    align = alignment if isinstance(alignment, int) and alignment > 0 else _DEFAULT_ALIGNMENT
    start = -(-file.tell() // align) * align
    return GgufHeader(
        fields=fields, array_lengths=lengths, parameters=parameters, tensor_bytes=max(0, file_bytes - start)
    )


def _read_string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_STRING_BYTES:
        raise UnknownArchitectureError("a string of the GGUF header is too long")
    return file.read(length).decode("utf-8", "replace")


def _read_scalar(file: BinaryIO, kind: int) -> Value:
    if kind == _STRING:
        return _read_string(file)
    code = "<" + _SCALARS[kind]
    return struct.unpack(code, file.read(struct.calcsize(code)))[0]


def _read_array(file: BinaryIO, element: int, count: int) -> tuple[int | float | bool, ...] | None:
    if element == _STRING:
        for _ in range(count):
            _read_string(file)
        return None
    code = f"<{count}{_SCALARS[element]}"
    return struct.unpack(code, file.read(struct.calcsize(code)))


def architecture_of(header: GgufHeader) -> Architecture:
    """Return the architecture that a header describes.

    Raises: UnknownArchitectureError.
    """
    family = str(header.fields.get("general.architecture", ""))
    reader = _Fields(header, family)
    layers = reader.need("block_count")
    hidden = reader.need("embedding_length")
    heads = reader.need("attention.head_count")
    vocabulary = header.array_lengths.get("tokenizer.ggml.tokens", 0) or reader.number("vocab_size")
    kv_heads = reader.per_layer("attention.head_count_kv", layers, heads)
    return Architecture(
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=max(kv_heads),
        intermediate=reader.number("feed_forward_length") or reader.number("expert_feed_forward_length"),
        vocabulary=vocabulary,
        context_tokens=reader.number("context_length") or None,
        cache=_cache(reader, layers, hidden // heads, kv_heads),
        parameters=Parameters(linear=header.parameters),
        weights=WeightFormat(
            name="gguf", matrix_bytes=header.tensor_bytes / max(1, header.parameters), plain_bytes=2.0
        ),
        has_experts=reader.number("expert_count") > 0,
        weight_bytes=header.tensor_bytes,
    )


def _cache(reader: "_Fields", layers: int, plain_dim: int, kv_heads: tuple[int, ...]) -> tuple[CacheLayers, ...]:
    key_dim = reader.number("attention.key_length") or plain_dim
    value_dim = reader.number("attention.value_length") or plain_dim
    if reader.has("ssm.state_size"):
        raise UnknownArchitectureError(f"{reader.family}: recurrent layers of GGUF files are not known here")
    if reader.number("attention.kv_lora_rank") and reader.number("attention.key_length_mla"):
        rank = reader.number("attention.kv_lora_rank")
        return (CacheLayers(kind=LayerKind.LATENT, count=layers, key_dim=key_dim, value_dim=rank),)
    window = reader.number("attention.sliding_window")
    pattern = reader.number("attention.sliding_window_pattern") or WINDOW_EVERY.get(reader.family, 0)
    if window and not pattern:
        window = 0  # llama.cpp keeps all tokens of a family for which it has no pattern
    groups: dict[tuple[LayerKind, int], int] = {}
    for number in range(layers):
        is_window = bool(window) and (number + 1) % pattern != 0
        key = (LayerKind.WINDOW if is_window else LayerKind.FULL, kv_heads[number])
        groups[key] = groups.get(key, 0) + 1
    return tuple(
        CacheLayers(
            kind=kind,
            count=count,
            kv_heads=heads,
            key_dim=key_dim,
            value_dim=value_dim,
            window_tokens=window if kind is LayerKind.WINDOW else None,
        )
        for (kind, heads), count in groups.items()
    )


WINDOW_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}
"""Every n-th layer sees all tokens. Source: llama.cpp's `set_swa_pattern` for each family."""


class _Fields:
    """Fields under the family's own prefix."""

    def __init__(self, header: GgufHeader, family: str) -> None:
        self._header, self.family = header, family

    def has(self, name: str) -> bool:
        return f"{self.family}.{name}" in self._header.fields

    def number(self, name: str) -> int:
        value = self._header.fields.get(f"{self.family}.{name}", 0)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0

    def need(self, name: str) -> int:
        if not (found := self.number(name)):
            raise UnknownArchitectureError(f"the GGUF file has no {self.family}.{name}")
        return found

    def per_layer(self, name: str, layers: int, otherwise: int) -> tuple[int, ...]:
        value = self._header.fields.get(f"{self.family}.{name}")
        if isinstance(value, tuple) and len(value) == layers:
            return tuple(int(one) for one in value)
        return (self.number(name) or otherwise,) * layers
