"""Which endpoint holds the KV of which prompt beginnings, as far as can be told from what it was sent.

One map from block to a set of endpoints (bits of a number), walked once a request; and for each endpoint its blocks in
the order in which the engine would evict them, bounded by what its KV memory holds.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace.domain.record import Record
from headrace.gateway.routing.core.chain import PromptChain


@dataclass(slots=True, eq=False)
class Shelf:
    """What one endpoint is believed to hold; blocks by their last use, oldest first."""

    bit: int
    capacity: float
    """In the chain's unit."""
    max_blocks: int
    sizes: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])
    held: int = 0
    unnamed: int = 0
    """What the engine has generated, and read of prompts too short to be named, since the index last looked: it takes
    room there (`PrefixIndex.age`)."""

    def __repr__(self) -> str:
        return f"Shelf(bit {self.bit.bit_length() - 1}, {len(self.sizes)} blocks, {self.held}/{self.capacity:.0f})"


class Matches(Record):
    """What the candidates hold of one prompt."""

    steps: Sequence[tuple[int, int]]
    """How much of its beginning is held, and by whom (bits); the most comes last, and who holds nothing is left out."""
    fresh_name: int
    """The first block that no candidate holds: what workers that know nothing yet can agree by; 0 where there is
    none."""

    @property
    def deepest(self) -> int:
        """Bits of those that hold most."""
        return self.steps[-1][0] if self.steps else 0

    @property
    def held(self) -> dict[int, int]:
        """By the endpoint's bit, how much it holds."""
        held: dict[int, int] = {}
        for holders, size in self.steps:
            while holders:
                bit = holders & -holders
                held[bit] = size
                holders ^= bit
        return held

    def held_of(self, bits: Iterable[int]) -> dict[int, int]:
        """The same of some endpoints only."""
        return {bit: size for bit in bits for holders, size in self.steps if bit & holders}


NOTHING_HELD: Mapping[int, int] = MappingProxyType({})
NO_MATCHES = Matches((), 0)


class PrefixIndex:
    """Not for use by several threads at once."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self._free: list[int] = []
        self._next_bit = 1
        self._retired: list[Shelf] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._holders)

    def new_shelf(self, *, capacity: float, max_blocks: int) -> Shelf:
        """Begin to follow an endpoint, which holds nothing."""
        if self._free:
            bit = self._free.pop()
        else:
            bit = self._next_bit
            self._next_bit <<= 1
        return Shelf(bit, capacity, max_blocks)

    def retire(self, shelf: Shelf) -> None:
        """The endpoint has restarted or is gone. Its blocks are taken out bit by bit by `sweep`; its number is not
        used again before that."""
        self._retired.append(shelf)

    def sweep(self, blocks: int) -> None:
        """Take at most so many blocks of retired shelves out."""
        while self._retired and blocks > 0:
            shelf = self._retired[-1]
            while shelf.sizes and blocks > 0:
                self._drop(shelf, shelf.sizes.popitem()[0])
                blocks -= 1
            if not shelf.sizes:
                self._free.append(self._retired.pop().bit)

    def match(self, chain: PromptChain, among: int) -> Matches:
        """Find how far from its beginning any endpoint of `among` (bits) holds the prompt.

        Who holds a block holds those before it, as eviction takes ends first: where a set of endpoints stops is found
        by halving, not by walking.
        """
        holders, names, ends = self._holders, chain.names, chain.ends
        steps: list[tuple[int, int]] = []
        alive, depth, count = among, 0, len(names)
        while depth < count:
            still = holders.get(names[depth], 0) & alive
            if still == alive:
                depth, high = depth + 1, count
                while depth < high:
                    middle = (depth + high) >> 1
                    if holders.get(names[middle], 0) & alive == alive:
                        depth = middle + 1
                    else:
                        high = middle
                continue
            if depth:
                steps.append((alive ^ still, ends[depth - 1]))
            if not still:
                return Matches(steps, names[depth])
            alive = still
        if depth:
            steps.append((alive, ends[depth - 1]))
        return Matches(steps, 0)

    def place(self, shelf: Shelf, chain: PromptChain) -> list[int]:
        """The endpoint is sent this prompt: it will hold all of it. Returns the names that are new there.

        From the end to the beginning, so that ends are evicted first, as engines do.
        """
        if shelf.unnamed:
            self.age(shelf)
        sizes, holders, ends, bit = shelf.sizes, self._holders, chain.ends, shelf.bit
        names, touch = chain.names, shelf.sizes.move_to_end
        added: list[int] = []
        grown = 0
        for place in range(len(names) - 1, -1, -1):
            name = names[place]
            if name in sizes:
                touch(name)
                continue
            size = ends[place] - ends[place - 1] if place else ends[0]
            sizes[name] = size
            grown += size
            holders[name] = holders[name] | bit if name in holders else bit
            added.append(name)
        shelf.held += grown
        if shelf.held > shelf.capacity or len(sizes) > shelf.max_blocks:
            self.shrink(shelf)
        return added

    def age(self, shelf: Shelf) -> None:
        """Let what is unnamed take its room, younger than all that was placed before it."""
        self._serial -= 1
        shelf.sizes[self._serial] = shelf.unnamed
        shelf.held += shelf.unnamed
        shelf.unnamed = 0
        if shelf.held > shelf.capacity or len(shelf.sizes) > shelf.max_blocks:
            self.shrink(shelf)

    def take_back(self, shelf: Shelf, names: Sequence[int]) -> None:
        """What was placed was never computed."""
        for name in names:
            size = shelf.sizes.pop(name, None)
            if size is not None:
                shelf.held -= size
                self._drop(shelf, name)

    def shrink(self, shelf: Shelf) -> None:
        """Evict the oldest until the rest fits."""
        sizes = shelf.sizes
        while sizes and (shelf.held > shelf.capacity or len(sizes) > shelf.max_blocks):
            name, size = sizes.popitem(last=False)
            shelf.held -= size
            self._drop(shelf, name)

    def shrink_to(self, shelf: Shelf, most: float) -> None:
        """Evict the oldest until no more than `most` is held; how much it may hold later stays."""
        sizes = shelf.sizes
        while sizes and shelf.held > most:
            name, size = sizes.popitem(last=False)
            shelf.held -= size
            self._drop(shelf, name)

    def _drop(self, shelf: Shelf, name: int) -> None:
        holders = self._holders
        left = holders.get(name, 0) & ~shelf.bit
        if left:
            holders[name] = left
        else:
            holders.pop(name, None)
