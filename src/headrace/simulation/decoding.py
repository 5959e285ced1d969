"""The sequences that generate, counted together: a decode step costs the same work for one as for a thousand.

Every decode step advances all of them, so a step counter and a few sums are enough: where each one stands follows from
the step at which it joined. `SpeculativeDecoding` does the same for sequences that advance unevenly.
"""

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator

from headrace.simulation.model import Speculation
from headrace.simulation.sequence import LiveSequence
from headrace.simulation.speculation import draw_pace


class Decoding(ABC):
    """What the scheduler asks of the generating sequences."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.step_count: int = 0
        self.sequences: dict[str, LiveSequence] = {}
        self._ends: list[tuple[int, int, LiveSequence]] = []
        """When each ends, with a number that settles ties: one that was preempted may have two entries alike."""
        self._join_count: int = 0

    def add(self, sequence: LiveSequence) -> None:
        """A sequence whose prompt is computed and that has at least one more token to generate."""
        sequence.decode_start = self.step_count
        self.sequences[sequence.request_id] = sequence
        steps = self._join(sequence)
        self._join_count += 1
        heapq.heappush(self._ends, (self.step_count + steps, self._join_count, sequence))

    def remove(self, sequence: LiveSequence) -> None:
        """Take a sequence out, and write down where it stands."""
        gained = self.gained_tokens(sequence)
        self._leave(sequence, gained)
        sequence.emitted += gained
        sequence.kv_tokens += gained
        sequence.allocated_tokens = sequence.kv_tokens
        sequence.pace = None
        del self.sequences[sequence.request_id]

    def steps_to_first_end(self) -> int:
        """Return how many steps until a sequence has all its tokens."""
        while True:
            end_step, _join, sequence = self._ends[0]
            if self._is_current(end_step, sequence):
                return end_step - self.step_count
            heapq.heappop(self._ends)

    def pop_ended(self) -> list[LiveSequence]:
        """Take out the sequences that have all their tokens."""
        ended: list[LiveSequence] = []
        while self._ends and self._ends[0][0] <= self.step_count:
            end_step, _join, sequence = heapq.heappop(self._ends)
            if self._is_current(end_step, sequence):
                self.remove(sequence)
                ended.append(sequence)
        return ended

    def _is_current(self, end_step: int, sequence: LiveSequence) -> bool:
        """False for an entry of a sequence that left since, even if it came back."""
        return self.sequences.get(sequence.request_id) is sequence and end_step == sequence.decode_start + self._steps(
            sequence
        )

    @abstractmethod
    def _join(self, sequence: LiveSequence) -> int:
        """Count a sequence in; return after how many steps it ends."""

    @abstractmethod
    def _leave(self, sequence: LiveSequence, gained: int) -> None: ...

    @abstractmethod
    def _steps(self, sequence: LiveSequence) -> int: ...

    @abstractmethod
    def gained_tokens(self, sequence: LiveSequence) -> int:
        """Return how many tokens a sequence generated since it joined."""

    @abstractmethod
    def last_gain_tokens(self, sequence: LiveSequence) -> int:
        """Return how many tokens the last step gave a sequence."""

    @property
    def kv_tokens(self) -> int:
        """KV tokens of all sequences together."""
        return next(self.iter_ahead())[0]

    @property
    def blocks_needed(self) -> int:
        """How many KV blocks the next step takes."""
        return self.blocks_ahead(1)

    @abstractmethod
    def blocks_ahead(self, steps: int) -> int:
        """Return how many KV blocks the coming steps take together."""

    @abstractmethod
    def iter_ahead(self) -> Iterator[tuple[int, int]]:
        """Yield, for each step from now on, the KV tokens of all before it and the KV blocks that it takes."""

    @abstractmethod
    def advance(self, steps: int = 1) -> int:
        """Do steps, none beyond the first end; return how many tokens they generated."""


def decoding_for(block_tokens: int, speculation: Speculation | None) -> Decoding:
    if speculation is None or speculation.draft_tokens == 0:
        return SteadyDecoding(block_tokens)
    return SpeculativeDecoding(block_tokens, speculation)


class SteadyDecoding(Decoding):
    """One token a step for each."""

    def __init__(self, block_tokens: int) -> None:
        super().__init__(block_tokens)
        self._crossings = [0] * block_tokens
        """Sequences by the step, modulo the block size, at which they need another block."""
        self._offset_tokens = 0
        """KV tokens of all sequences, as if each had joined at step 0."""

    def _steps(self, sequence: LiveSequence) -> int:
        return sequence.output_tokens - sequence.emitted

    def _join(self, sequence: LiveSequence) -> int:
        self._count(sequence, 1)
        return self._steps(sequence)

    def _leave(self, sequence: LiveSequence, gained: int) -> None:
        self._count(sequence, -1)

    def _count(self, sequence: LiveSequence, by: int) -> None:
        offset = sequence.decode_start - sequence.kv_tokens
        self._crossings[offset % self.block_tokens] += by
        self._offset_tokens -= by * offset

    def gained_tokens(self, sequence: LiveSequence) -> int:
        return self.step_count - sequence.decode_start

    def last_gain_tokens(self, sequence: LiveSequence) -> int:
        return 1

    def iter_ahead(self) -> Iterator[tuple[int, int]]:
        count, size, crossings = len(self.sequences), self.block_tokens, self._crossings
        step = self.step_count
        while True:
            yield self._offset_tokens + count * step, crossings[step % size]
            step += 1

    def blocks_ahead(self, steps: int) -> int:
        crossings, size = self._crossings, self.block_tokens
        if steps == 1:
            return crossings[self.step_count % size]
        rounds, rest = divmod(steps, size)
        start = self.step_count % size
        once = sum(crossings[start : start + rest]) + sum(crossings[: max(0, start + rest - size)])
        return rounds * len(self.sequences) + once

    def advance(self, steps: int = 1) -> int:
        self.step_count += steps
        return len(self.sequences) * steps


class SpeculativeDecoding(Decoding):
    """One token and as many accepted drafts a step, by a pace drawn for each sequence when it joins.

    KV of drafts is taken to fit what is allocated: rejected ones never take a block.
    """

    def __init__(self, block_tokens: int, speculation: Speculation) -> None:
        super().__init__(block_tokens)
        self._speculation = speculation
        self._tokens_at: defaultdict[int, int] = defaultdict(int)
        self._blocks_at: defaultdict[int, int] = defaultdict(int)
        self._kv_tokens = 0

    def _steps(self, sequence: LiveSequence) -> int:
        assert sequence.pace is not None
        return len(sequence.pace) - 1

    def _join(self, sequence: LiveSequence) -> int:
        sequence.pace = draw_pace(self._speculation, sequence)
        self._kv_tokens += sequence.kv_tokens
        self._count(sequence, 0, 1)
        return self._steps(sequence)

    def _leave(self, sequence: LiveSequence, gained: int) -> None:
        self._kv_tokens -= sequence.kv_tokens + gained
        self._count(sequence, self.step_count - sequence.decode_start, -1)

    def _count(self, sequence: LiveSequence, done_steps: int, by: int) -> None:
        """Add (or take away) what its steps from now on bring."""
        pace, size = sequence.pace, self.block_tokens
        assert pace is not None
        for index in range(done_steps, len(pace) - 1):
            step = sequence.decode_start + index
            before, after = sequence.kv_tokens + pace[index], sequence.kv_tokens + pace[index + 1]
            self._tokens_at[step] += by * (after - before)
            self._blocks_at[step] += by * (-(-after // size) + -before // size)

    def gained_tokens(self, sequence: LiveSequence) -> int:
        assert sequence.pace is not None
        return sequence.pace[self.step_count - sequence.decode_start]

    def last_gain_tokens(self, sequence: LiveSequence) -> int:
        assert sequence.pace is not None
        done_steps = self.step_count - sequence.decode_start
        return sequence.pace[done_steps] - sequence.pace[done_steps - 1]

    def iter_ahead(self) -> Iterator[tuple[int, int]]:
        kv_tokens, step = self._kv_tokens, self.step_count
        while True:
            yield kv_tokens, self._blocks_at.get(step, 0)
            kv_tokens += self._tokens_at.get(step, 0)
            step += 1

    def blocks_ahead(self, steps: int) -> int:
        return sum(self._blocks_at.get(step, 0) for step in range(self.step_count, self.step_count + steps))

    def advance(self, steps: int = 1) -> int:
        tokens = 0
        for _ in range(steps):
            tokens += self._tokens_at.pop(self.step_count, 0)
            self._blocks_at.pop(self.step_count, None)
            self.step_count += 1
        self._kv_tokens += tokens
        return tokens
