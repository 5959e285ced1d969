"""Read single facts from a GGUF file's header without the vocabulary that follows them. Standard library only.

Source: the GGUF specification in ggml's docs/gguf.md (version 3, little endian).
"""

import struct
from pathlib import Path
from typing import BinaryIO

_FIXED_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Type number -> bytes."""

_STRING, _ARRAY, _UINT32 = 8, 9, 4
_LONGEST_STRING_BYTES = 1 << 20
_MOST_FIELDS = 4096


def has_pooling(path: Path) -> bool:
    """Tell whether an embedding model says itself how to pool (`<architecture>.pooling_type`, 0 being none).

    A file that cannot be read counts as one that does: then nothing is overridden, and llama.cpp reports the file.
    """
    try:
        with path.open("rb") as file:
            return _find_pooling(file)
    except (OSError, struct.error, ValueError, KeyError):
        return True


def _find_pooling(file: BinaryIO) -> bool:
    magic, version, _, fields = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version < 2:
        raise ValueError("not GGUF")
    for _ in range(min(fields, _MOST_FIELDS)):
        name = _read_string(file)
        if name.startswith("tokenizer."):
            return False
        (kind,) = struct.unpack("<I", file.read(4))
        if name.endswith(".pooling_type") and kind == _UINT32:
            (value,) = struct.unpack("<I", file.read(4))
            return bool(value)
        _skip(file, kind)
    return False


def _read_string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_STRING_BYTES:
        raise ValueError("a string of the header is too long")
    return file.read(length).decode("utf-8", "replace")


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _read_string(file)
    elif kind == _ARRAY:
        element, count = struct.unpack("<IQ", file.read(12))
        if element in _FIXED_BYTES:
            file.seek(_FIXED_BYTES[element] * count, 1)
        else:
            for _ in range(count):
                _skip(file, element)
    else:
        file.seek(_FIXED_BYTES[kind], 1)
