"""What is kept of a prompt: for each segment its length and keyed hashes, and where times and ids are. No text.

Hashes are BLAKE2b under the instance's secret, cut to 64 bits (blocks: 32): without the secret nobody can try out texts
against them. Segments that several prompts have in common are kept once, and are not looked into again.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from headrace.cache_misses.core.marks import Mark, find_marks, without_marks
from headrace.cache_misses.core.segments import Place, Segment, sorted_json

BLOCK_SIZES = ((4096, 64), (32_768, 512), (65_536, 4096))
"""Up to which byte of a segment blocks have which size: the grain with which a place is known."""
LOOKED_BYTES = 65_536
"""Of one segment; beyond it only whether all of it is equal is known."""
NEW_BYTES = 65_536
"""Of one prompt, in segments not seen before; the rest of the prompt is left for the next time. Bounds the time that
one fingerprint takes."""
NEW_SEGMENT_BYTES = 2048
"""What a new segment counts beside its bytes: its hashes cost as much. Measured."""
MOST_SEGMENTS = 256
"""Of one prompt; what comes after them is left out."""
CHUNKED_BYTES = 8192
MOST_CHUNKS = 64
LEAST_CHUNK_BYTES = 24
"""Chunks end where lines and sentences do, so that text that only moved is found again."""
SHAPE_BYTES = 400
"""What a shape takes beside its blocks, marks and chunks, in this Python. Measured with sys.getsizeof."""
MARK_BYTES, CHUNK_BYTES = 250, 100


def _edges() -> tuple[int, ...]:
    edges = [0]
    for limit, size in BLOCK_SIZES:
        while edges[-1] < limit:
            edges.append(edges[-1] + size)
    return tuple(edges)


EDGES = _edges()


def block_start(byte: int) -> int:
    """Where the block of a byte begins."""
    return EDGES[bisect_right(EDGES, byte) - 1]


_WHITE_SPACE = b" \t\r\n\v\f"


Chunk = tuple[int, int, int]
"""Hash of a sentence or line, where it begins (the last time) and its length (of all times together)."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What is known of one segment's bytes."""

    exact: int
    length_bytes: int
    spaceless: int
    """Of the bytes without white space."""
    masked: int
    """Of the bytes without white space, times, ids and numbers; of JSON with its keys in order, too."""
    ordered: int
    """Of JSON with its keys in order; of text the same as `exact`."""
    blocks: "array[int]"
    marks: tuple[Mark, ...]
    mark_hashes: tuple[tuple[int, int], ...]
    """Of each mark, what precedes it in its block, and itself."""
    chunks: tuple[Chunk, ...]
    """Its sentences and lines: what it has in common with others."""

    @property
    def size_bytes(self) -> int:
        return SHAPE_BYTES + 4 * len(self.blocks) + MARK_BYTES * len(self.marks) + CHUNK_BYTES * len(self.chunks)


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """One prompt."""

    places: tuple[Place, ...]
    shapes: tuple[Shape, ...]
    is_cut: bool
    """There was more of it than was looked at."""

    @property
    def length_bytes(self) -> int:
        return sum(shape.length_bytes for shape in self.shapes)


class FingerprintMaker:
    """Makes fingerprints under one secret; `known` shapes, by their exact hash, are used again."""

    def __init__(self, secret: bytes, known: dict[int, Shape] | None = None) -> None:
        self._keyed = blake2b(digest_size=8, key=blake2b(secret, digest_size=32).digest())
        self._known = {} if known is None else known

    def make(self, segments: Iterable[Segment], new_bytes: int | None = NEW_BYTES) -> Fingerprint:
        """Take a prompt's fingerprint. `new_bytes` None: however long that takes. Raises: UnreadableError."""
        places: list[Place] = []
        shapes: list[Shape] = []
        left = new_bytes
        for segment in segments:
            if len(shapes) == MOST_SEGMENTS or (left is not None and left <= 0):
                return Fingerprint(tuple(places), tuple(shapes), is_cut=True)
            place = segment.place
            exact = self.hash_of(b"%b %b\0%b" % (place.role.encode(), place.kind.encode(), segment.text))
            shape = self._known.get(exact)
            if shape is None:
                shape = self._shape(segment, exact)
                if left is not None:
                    left -= min(len(segment.text), LOOKED_BYTES) + NEW_SEGMENT_BYTES
            places.append(place)
            shapes.append(shape)
        return Fingerprint(tuple(places), tuple(shapes), is_cut=False)

    def hash_of(self, text: bytes) -> int:
        keyed = self._keyed.copy()
        keyed.update(text)
        return int.from_bytes(keyed.digest(), "little")

    def _shape(self, segment: Segment, exact: int) -> Shape:
        text = segment.text[:LOOKED_BYTES]
        marks = find_marks(text)
        ordered, bare = exact, without_marks(text, marks)
        if segment.is_json and len(segment.text) <= LOOKED_BYTES:
            in_order = sorted_json(segment.text)
            ordered = self.hash_of(in_order)
            bare = without_marks(in_order, find_marks(in_order))
        length = b"%d\0" % (0 if len(segment.text) <= LOOKED_BYTES else len(segment.text))
        return Shape(
            exact=exact,
            length_bytes=len(segment.text),
            spaceless=self.hash_of(length + _spaceless(text, is_json=segment.is_json)),
            masked=self.hash_of(length + _spaceless(bare, is_json=segment.is_json)),
            ordered=ordered,
            blocks=self._blocks(text),
            marks=marks,
            mark_hashes=tuple(
                (self.hash_of(text[block_start(start) : start]), self.hash_of(text[start:end]))
                for start, end, _ in marks
            ),
            chunks=self._chunks(text),
        )

    def _blocks(self, text: bytes) -> "array[int]":
        view = memoryview(text)
        blocks: array[int] = array("I")
        for start, end in pairwise(EDGES):
            if start >= len(text):
                break
            blocks.append(self.hash_of(view[start:end]) & 0xFFFFFFFF)  # pyright: ignore[reportArgumentType]
        return blocks

    def _chunks(self, text: bytes) -> tuple[Chunk, ...]:
        found: dict[int, Chunk] = {}
        start = 0
        for piece in text[:CHUNKED_BYTES].replace(b". ", b".\n").split(b"\n"):
            bare = piece.strip()
            if len(bare) >= LEAST_CHUNK_BYTES:
                name = self.hash_of(bare)
                known = found.get(name)
                if known is None and len(found) == MOST_CHUNKS:
                    break
                found[name] = (name, start, len(bare) + (known[2] if known else 0))
            start += len(piece) + 1
        return tuple(found.values())


def _spaceless(text: bytes, *, is_json: bool) -> bytes:
    if is_json:
        text = text.replace(b"\\n", b"").replace(b"\\t", b"").replace(b"\\r", b"")
    return text.translate(None, _WHITE_SPACE)
