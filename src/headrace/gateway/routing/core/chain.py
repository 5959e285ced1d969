"""A prompt as a chain of keyed hashes: each name stands for one block of its bytes and for all that comes before it.

Two prompts share as many names as they share blocks from their beginning. Blocks grow with their distance from the
beginning of a part, so that a short system prompt is seen finely and a prompt of a million bytes costs few hashes.
"""

from collections.abc import Iterable, Sequence

import msgspec
from xxhash import xxh3_64_intdigest

Bytes = bytes | memoryview

BLOCK_SIZES = ((1024, 256), (4096, 512), (32_768, 1024), (131_072, 2048), (4_194_304, 4096))
"""Up to which byte of a part blocks have which size. Chosen: what a prompt shares is known to a quarter at its very
beginning and to 3 % further on; a prompt of 100,000 tokens (400 kB) makes 152 blocks."""


def _edges() -> tuple[int, ...]:
    edges = [0]
    for limit, size in BLOCK_SIZES:
        while edges[-1] < limit:
            edges.append(edges[-1] + size)
    return tuple(edges[1:])


EDGES = _edges()
"""Where the blocks of a part end. Bytes beyond the last edge are not looked at: no context is as long."""

_SPANS = tuple(zip((0, *EDGES[:-1]), EDGES, strict=True))


class PromptChain(msgspec.Struct):
    """The full blocks of one prompt.

    Units of `ends` and `length`: bytes in the gateway; a rehearsal of a trace, which has no text, counts tokens.
    """

    names: Sequence[int]
    ends: Sequence[int]
    """Where each block ends, counted from the prompt's beginning; may be longer than `names`."""
    length: int
    """Of the whole prompt, its last partial block included."""


def chain_of(parts: Sequence[Bytes], seed: int) -> PromptChain:
    """Name the blocks of a prompt that consists of `parts`, each ended before the next begins.

    All parts but the last are taken as complete, so that what is left of them is a block of its own; the end of the
    last one, which another turn would continue, is left out. `seed` holds the secret, the model and the tenant.
    """
    if len(parts) == 1:
        whole_prompt = memoryview(parts[0])
        return PromptChain(names=_names(whole_prompt, seed), ends=EDGES, length=len(whole_prompt))
    names: list[int] = []
    ends: list[int] = []
    start = 0
    for number, part in enumerate(parts):
        found = _names(memoryview(part), names[-1] if names else seed)
        names += found
        ends += [start + edge for edge in EDGES[: len(found)]]
        start += len(part)
        if number < len(parts) - 1 and (not ends or ends[-1] < start):
            whole = ends[-1] if found else start - len(part)
            names.append(xxh3_64_intdigest(memoryview(part)[whole - start + len(part) :], names[-1] if names else seed))
            ends.append(start)
    return PromptChain(names=names, ends=ends, length=start)


def _names(part: memoryview, parent: int) -> list[int]:
    """The hash of a block begins with the name of the one before it as its seed: one call names both."""
    length = len(part)
    names: list[int] = []
    for start, end in _SPANS:
        if end > length:
            break
        parent = xxh3_64_intdigest(part[start:end], parent)
        names.append(parent)
    return names


def seed_of(secret: bytes, scopes: Iterable[str]) -> int:
    """Where chains begin that share nothing with those of another secret, model or (where kept apart) tenant."""
    seed = xxh3_64_intdigest(secret)
    for scope in scopes:
        seed = xxh3_64_intdigest(scope.encode("utf-8", "surrogatepass"), seed)
    return seed
