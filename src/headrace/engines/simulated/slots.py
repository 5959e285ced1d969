"""llama.cpp's slots: which tokens' KV each holds, saved to and restored from files by its HTTP paths."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.engines.simulated.generation import Choice, Generation
from headrace.engines.simulated.text import encode


@dataclass(slots=True)
class Slot:
    """One slot: what it served last."""

    tokens: list[int] = field(default_factory=list[int])
    is_restored: bool = False
    """The tokens came from a file, and no request has used them yet."""


class Slots:
    """All slots of one engine. Requests that name none leave them as they are."""

    def __init__(self, count: int) -> None:
        self._slots = [Slot() for _ in range(count)]

    def tokens(self, slot: int) -> list[int]:
        return self._slots[slot].tokens

    def restore(self, slot: int, tokens: list[int]) -> None:
        self._slots[slot] = Slot(tokens=tokens, is_restored=bool(tokens))

    def note_end(self, generation: Generation, choice: Choice) -> None:
        """A choice has ended: its slot holds prompt and answer now, but for the last token, which was never fed."""
        if (slot := self._of(generation)) is not None:
            slot.tokens = [*choice.prompt.tokens, *encode(choice.answer.text(0, max(choice.sent_tokens - 1, 0)))]
            slot.is_restored = False

    def take_restored(self, generation: Generation) -> int:
        """Of a request for a slot that was restored: how many tokens of its prompt the slot has."""
        slot = self._of(generation)
        if slot is None or not slot.is_restored:
            return 0
        slot.is_restored = False
        return _shared_beginning(slot.tokens, generation.choices[0].prompt.tokens)

    def _of(self, generation: Generation) -> Slot | None:
        number = generation.ask.body.id_slot
        return self._slots[number] if number is not None and 0 <= number < len(self._slots) else None


def _shared_beginning(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences share at their beginning."""
    shared = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        shared += 1
    return shared
