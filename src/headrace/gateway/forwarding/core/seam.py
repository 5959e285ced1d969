"""The seam of a resumed stream: what the caller has on one side, what another engine says on the other.

1. What the engine is expected to say again (an echo, or white space that templates trim) does not go out a second time.
2. A stop text that begins in what the caller has and ends in what is new ends the answer, as it would have without the
   break: new text is held back while it may yet be the rest of one. A stop text wholly in the new text is the engine's.
"""


class Seam:
    """Takes the new text piece by piece, and gives back what goes out. Pure; one stream."""

    __slots__ = ("_expected", "_held", "_rests", "is_stopped")

    def __init__(self, had: str, *, expected: str = "", stops: tuple[str, ...] = ()) -> None:
        self._expected = expected
        self._held: str = ""
        self._rests: tuple[str, ...] = tuple(
            stop[length:] for stop in stops for length in range(1, len(stop)) if had.endswith(stop[:length])
        )
        """What would complete a stop text that the caller has the beginning of."""
        self.is_stopped = False
        """A stop text lay across the seam: nothing more goes out."""

    @property
    def is_passed(self) -> bool:
        """All that follows goes out as it comes."""
        return not (self._expected or self._rests or self.is_stopped)

    def take(self, text: str, *, is_last: bool = False) -> str:
        """Return what of `text`, and of what was held back before, goes out now. `is_last`: the answer ends with it."""
        if self.is_stopped:
            return ""
        text = self._without_expected(text)
        if not self._rests:
            return text
        text = self._held + text
        if any(text.startswith(rest) for rest in self._rests):
            self._held = ""
            self._rests = ()
            self.is_stopped = True
            return ""
        self._rests = () if is_last else tuple(rest for rest in self._rests if rest.startswith(text))
        self._held = text if self._rests else ""
        return "" if self._rests else text

    def _without_expected(self, text: str) -> str:
        expected = self._expected
        if not expected or not text:
            return text
        length = 0
        while length < min(len(expected), len(text)) and expected[length] == text[length]:
            length += 1
        # It said something else: no more is expected. Otherwise the rest may follow.
        self._expected = expected[length:] if length == len(text) else ""
        return text[length:]
