"""Prefix reuse by slot, as in llama.cpp: each slot keeps the sequence it served last."""

from headrace.simulation.kv.cache import CacheMatch, KvCache, shared_prefix_length
from headrace.simulation.model import KvModel
from headrace.simulation.sequence import LiveSequence

SIMILARITY_RATIO = 0.10
"""A slot is preferred if it shares more than this part of the prompt. Source: llama.cpp, `--slot-prompt-similarity`."""


class _Slot:
    __slots__ = ("index", "is_busy", "tokens", "used_tick")

    def __init__(self, index: int) -> None:
        self.index = index
        self.tokens: tuple[int, ...] = ()
        self.is_busy = False
        self.used_tick = 0


class SlotCache(KvCache):
    """A fixed number of slots over one memory that they share. What an idle slot keeps goes when room is needed."""

    is_held_on_device = False
    is_assigned_first = True

    def __init__(self, model: KvModel, *, slots: int) -> None:
        super().__init__(model)
        if model.block_tokens != 1:
            raise ValueError(f"slots hold single tokens, not blocks of {model.block_tokens}")
        self._slots = [_Slot(index) for index in range(slots)]
        self._taken: dict[str, tuple[_Slot, int]] = {}
        """By request: its slot, and how many of the slot's tokens it found useful."""
        self._tick = 0
        self._idle_tokens = 0

    @property
    def shared_blocks(self) -> int:
        return self._idle_tokens

    @property
    def idle_blocks(self) -> int:
        return self._idle_tokens

    def turn_of(self, sequence: LiveSequence) -> int:
        """llama.cpp goes through its slots in their order, whoever came first."""
        return self._taken[sequence.request_id][0].index

    def match(self, sequence: LiveSequence) -> CacheMatch:
        slot, shared = self._choose(sequence)
        self._idle_tokens -= len(slot.tokens)
        self.private_blocks += shared
        slot.is_busy = True
        self._taken[sequence.request_id] = (slot, shared)
        return CacheMatch(shared, 0)

    def abandon(self, sequence: LiveSequence) -> None:
        slot, shared = self._taken.pop(sequence.request_id)
        self.private_blocks -= shared
        self._idle_tokens += len(slot.tokens)
        slot.is_busy = False

    def publish(self, sequence: LiveSequence, tokens: int) -> None:
        """Others find it only when the slot is idle again."""

    def release(self, sequence: LiveSequence, computed_tokens: int, allocated_tokens: int) -> None:
        if sequence.request_id not in self._taken:
            return
        slot, _shared = self._taken.pop(sequence.request_id)
        self.give_back(allocated_tokens)
        slot.tokens = sequence.known_tokens(computed_tokens) if self.is_prefix_cached else ()
        self._idle_tokens += len(slot.tokens)
        slot.is_busy = False
        self._tick += 1
        slot.used_tick = self._tick

    def evict(self, blocks: int) -> None:
        idle = sorted((slot for slot in self._slots if not slot.is_busy), key=lambda slot: slot.used_tick)
        for slot in idle:
            if blocks <= 0:
                break
            blocks -= len(slot.tokens)
            self.evicted_blocks += len(slot.tokens)
            self._idle_tokens -= len(slot.tokens)
            slot.tokens = ()

    def clear(self) -> None:
        self.evict(self._idle_tokens)

    def _choose(self, sequence: LiveSequence) -> tuple[_Slot, int]:
        """Take the idle slot that shares most of the prompt, or the one idle for longest."""
        idle = [slot for slot in self._slots if not slot.is_busy]
        tokens = sequence.known_tokens(sequence.target_tokens)[: sequence.target_tokens - 1]
        shared = {id(slot): shared_prefix_length(slot.tokens, tokens) for slot in idle}
        best = max(idle, key=lambda slot: (shared[id(slot)], -slot.used_tick))
        if shared[id(best)] > SIMILARITY_RATIO * sequence.target_tokens:
            return best, shared[id(best)]
        oldest = min(idle, key=lambda slot: slot.used_tick)
        return oldest, shared[id(oldest)]
