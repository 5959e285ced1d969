"""Times, ids and numbers are found by what they look like."""

import pytest

from headrace.cache_misses.core.marks import MOST_MARKS, SCANNED_BYTES, MarkKind, find_marks, without_marks


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2026-11-30T11:31:29Z", MarkKind.TIME),
        ("2026-11-30 11:31:29.250 +01:00", MarkKind.TIME),
        ("2026-11-30", MarkKind.TIME),
        ("30 November 2026", MarkKind.TIME),
        ("Nov 30, 2026", MarkKind.TIME),
        ("11:31 PM", MarkKind.TIME),
        ("30/11/2026", MarkKind.TIME),
        ("1764502289", MarkKind.TIME),
        ("3f2b8c1e-1111-4222-8333-abcdefabcdef", MarkKind.ID),
        ("deadbeefdeadbee1", MarkKind.ID),
        ("call_8f3a99b2c1", MarkKind.ID),
        ("42", MarkKind.NUMBER),
    ],
)
def test_marks_are_told_apart(text: str, kind: MarkKind) -> None:
    """Each form is found whole, wherever it stands in a sentence."""
    (mark,) = find_marks(f"It says {text}, here.".encode())
    assert mark == (8, 8 + len(text), kind)


@pytest.mark.parametrize("text", ["no digits at all", "utf8x", "a1b", "well-known"])
def test_words_are_no_marks(text: str) -> None:
    """A digit inside a word makes no mark of it."""
    assert find_marks(text.encode()) == ()


def test_only_the_beginning_is_looked_at() -> None:
    """Marks are bounded in number and in how far they are looked for."""
    assert find_marks(b"x" * SCANNED_BYTES + b" 42") == ()
    assert len(find_marks(b"7 " * 100)) == MOST_MARKS


def test_marks_are_taken_out() -> None:
    """What is left does not depend on what they said."""
    first, second = b"At 11:31 of 2026-11-30.", b"At 9:05 of 2027-01-02."
    assert without_marks(first, find_marks(first)) == without_marks(second, find_marks(second))
