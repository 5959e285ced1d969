"""What the scheduler needs from KV memory, whatever its way of finding prefixes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from headrace.simulation.model import KvModel
from headrace.simulation.sequence import LiveSequence


class CacheMatch(NamedTuple):
    """How much of a prompt's KV is there. Units: tokens; the host's follow the device's."""

    device_tokens: int
    host_tokens: int


class KvCache(ABC):
    """Blocks of device memory: private to a sequence, shared under a name, idle (findable, unused) or free.

    A sequence goes `match` -> `take` and `publish`, any number of times -> `release`. `match` pins what it finds;
    `abandon` undoes it. Private blocks are counted, not numbered.
    """

    is_held_on_device = True
    """KV that waits to be fetched keeps its blocks; False: it is saved elsewhere, as llama.cpp saves slots to files."""
    is_assigned_first = False
    """True: who waits is given its place at once, and prompts then share the step in the order of places."""

    def __init__(self, model: KvModel) -> None:
        self.total_blocks = model.total_blocks
        self.block_tokens = model.block_tokens
        self.is_prefix_cached = model.is_prefix_cached
        self.private_blocks = 0
        self.evicted_blocks = 0
        self.releases = 0
        """Grows whenever blocks become available: a request that found no room need not look again before."""

    @property
    @abstractmethod
    def shared_blocks(self) -> int:
        """Blocks that can be found, pinned or idle."""

    @property
    @abstractmethod
    def idle_blocks(self) -> int:
        """Blocks that can be found and that nobody uses: evicted when room is needed."""

    @property
    def host_blocks(self) -> int:
        """Blocks in host memory."""
        return 0

    @property
    def available_blocks(self) -> int:
        return self.total_blocks - self.private_blocks - self.shared_blocks + self.idle_blocks

    @property
    def used_blocks(self) -> int:
        return self.private_blocks + self.shared_blocks - self.idle_blocks

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def take(self, blocks: int) -> None:
        """Make blocks private to some sequence, evicting idle ones as needed. The caller has checked the room."""
        if not blocks:
            return
        short = blocks - (self.total_blocks - self.private_blocks - self.shared_blocks)
        if short > 0:
            self.evict(short)
        self.private_blocks += blocks

    def give_back(self, blocks: int) -> None:
        """Free private blocks."""
        self.private_blocks -= blocks
        self.releases += 1

    def turn_of(self, sequence: LiveSequence) -> int:
        """Return a running sequence's place when prompts under way share a step: the order of arrival."""
        return sequence.order

    @abstractmethod
    def match(self, sequence: LiveSequence) -> CacheMatch:
        """Find and pin the longest known prefix; at least one token is always left to compute."""

    @abstractmethod
    def abandon(self, sequence: LiveSequence) -> None:
        """Unpin what `match` found: there was no room for the rest."""

    @abstractmethod
    def publish(self, sequence: LiveSequence, tokens: int) -> None:
        """The KV of the first `tokens` tokens is computed: others may find it."""

    @abstractmethod
    def release(self, sequence: LiveSequence, computed_tokens: int, allocated_tokens: int) -> None:
        """The sequence ends or is preempted; what it computed stays findable until evicted."""

    @abstractmethod
    def evict(self, blocks: int) -> None:
        """Free at least this many idle blocks, least recently used first."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all idle blocks."""


def shared_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many leading tokens are equal. Compares slices, which is quick, instead of tokens."""
    longest = min(len(one), len(other))
    if one[:longest] == other[:longest]:
        return longest
    equal, unequal = 0, longest
    while unequal - equal > 1:
        middle = (equal + unequal) // 2
        if one[equal:middle] == other[equal:middle]:
            equal = middle
        else:
            unequal = middle
    return equal
