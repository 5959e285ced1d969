"""Fingerprints of recent prompts, bounded by memory, found again by what they have in common with another."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.cache_misses.core.fingerprint import Fingerprint, Shape

LEAST_KEY_BYTES = 64
"""Shorter segments lead to no other prompt: `yes` is said often."""
MOST_KEYS = 24
"""That lead to one prompt: its longest segments and sentences."""
MOST_PER_KEY = 8
MOST_SIBLINGS = 8
"""Prompts that one is compared with."""
FINGERPRINT_BYTES, SEGMENT_BYTES, KEY_BYTES = 600, 120, 150
"""What a fingerprint, each of its segments and each key to it take beside the shapes. Measured with tracemalloc."""

Scope = tuple[str, str]
"""Model and tenant: prompts of others are never compared."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Seen:
    """One answered prompt."""

    scope: Scope
    family: int
    prompt: Fingerprint
    endpoint: str
    version: str
    """Of what answered: pool, and the model's name there."""
    outages: int
    """Of the endpoint, until then."""
    ended_mono_s: float
    cache_losses: int | None = None
    """What the endpoint's engine said it has lost from its cache until then; None where it does not tell."""


class FingerprintStore:
    """Not for use by several threads at once."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.shapes: dict[int, Shape] = {}
        """By their exact hash; `FingerprintMaker` uses them again."""
        self._uses: Counter[int] = Counter()
        self._seen: OrderedDict[int, Seen] = OrderedDict()
        self._by_key: dict[tuple[Scope, int], list[int]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._seen.values())

    def add(self, seen: Seen) -> None:
        """Keep it; the oldest are forgotten when memory is used up."""
        self._serial += 1
        self._seen[self._serial] = seen
        self.held_bytes += FINGERPRINT_BYTES + SEGMENT_BYTES * len(seen.prompt.shapes)
        for shape in seen.prompt.shapes:
            if not self._uses[shape.exact]:
                self.shapes[shape.exact] = shape
                self.held_bytes += shape.size_bytes
            self._uses[shape.exact] += 1
        for key in _keys(seen.prompt):
            serials = self._by_key.setdefault((seen.scope, key), [])
            serials.append(self._serial)
            self.held_bytes += KEY_BYTES
            if len(serials) > MOST_PER_KEY:
                del serials[0]
                self.held_bytes -= KEY_BYTES
        while self.held_bytes > self.limit_bytes and self._seen:
            self._forget_oldest()

    def find_siblings(self, scope: Scope, prompt: Fingerprint, *, before_mono_s: float) -> list[Seen]:
        """Prompts that have most in common with this one and were answered before it was sent; of equals the newest."""
        found: Counter[int] = Counter()
        for key in _keys(prompt):
            found.update(self._by_key.get((scope, key), ()))
        ranked = sorted(found.items(), key=lambda item: (-item[1], -item[0]))
        siblings: list[Seen] = []
        for serial, _ in ranked:
            seen = self._seen[serial]
            if seen.ended_mono_s <= before_mono_s:
                siblings.append(seen)
                if len(siblings) == MOST_SIBLINGS:
                    break
        return siblings

    def _forget_oldest(self) -> None:
        serial, seen = self._seen.popitem(last=False)
        self.held_bytes -= FINGERPRINT_BYTES + SEGMENT_BYTES * len(seen.prompt.shapes)
        for shape in seen.prompt.shapes:
            self._uses[shape.exact] -= 1
            if not self._uses[shape.exact]:
                del self._uses[shape.exact], self.shapes[shape.exact]
                self.held_bytes -= shape.size_bytes
        for key in _keys(seen.prompt):
            serials = self._by_key.get((seen.scope, key))
            if serials and serial in serials:
                serials.remove(serial)
                self.held_bytes -= KEY_BYTES
                if not serials:
                    del self._by_key[seen.scope, key]


def _keys(prompt: Fingerprint) -> Iterable[int]:
    """Hashes by which a prompt is found: of whole segments without what changes, and of single sentences."""
    longest: dict[int, int] = {}
    for shape in prompt.shapes:
        if shape.length_bytes >= LEAST_KEY_BYTES:
            longest[shape.masked] = shape.length_bytes
            for name, _, length in shape.chunks:
                if length >= LEAST_KEY_BYTES:
                    longest.setdefault(name, length)
    return sorted(longest, key=lambda name: (-longest[name], name))[:MOST_KEYS]
