"""Parts of a text that look as if they changed with every request: times and ids. Only where they are is kept."""

import re
from enum import StrEnum

SCANNED_BYTES = 4096
"""Of each segment; beyond it nothing is looked for. Chosen: what changes and costs a cache is near a beginning."""
MOST_MARKS = 32
"""Kept of one segment."""
LOOK_BACK_BYTES = 37
"""So far before its first digit a mark can begin: a prefix, a line and letters of an id."""
LOOK_AHEAD_BYTES = 80


class MarkKind(StrEnum):
    TIME = "time"
    ID = "id"
    NUMBER = "number"


Mark = tuple[int, int, MarkKind]
"""Where it begins and ends, in bytes of its segment, and what it looks like."""

_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_CLOCK = rb"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm]\b)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_TIME = (
    rb"\d{4}-\d\d-\d\d(?:[T ]" + _CLOCK + rb")?"
    rb"|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}(?:,? " + _CLOCK + rb")?"
    rb"|\d{1,2}(?:st|nd|rd|th)? " + _MONTH + rb",? \d{4}(?:,? " + _CLOCK + rb")?"
    rb"|" + _MONTH + rb" \d{1,2}(?:st|nd|rd|th)?(?:,? " + _CLOCK + rb")?(?:,? \d{4})?"
    rb"|" + _CLOCK + rb"|(?<![\d.])1[4-9]\d{8}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?(?![\d.])"
)
_ID = (
    rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    rb"|(?=[0-9a-fA-F]{0,15}\d)[0-9a-fA-F]{16,64}"
    rb"|[A-Za-z]{1,12}[_-](?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{8,40}"
)
_MARK = re.compile(rb"(?<![A-Za-z0-9])(?:(?P<id>" + _ID + rb")|(?P<time>" + _TIME + rb")|(?P<number>\d+))(?![A-Za-z])")
_KINDS = {"id": MarkKind.ID, "time": MarkKind.TIME, "number": MarkKind.NUMBER}
_DIGITS_TO_0 = bytes.maketrans(b"123456789", b"000000000")


def find_marks(text: bytes) -> tuple[Mark, ...]:
    """Return the marks of a segment's beginning, in order. Every mark has a digit: only around those is looked."""
    digits = text[:SCANNED_BYTES].translate(_DIGITS_TO_0)
    marks: list[Mark] = []
    at = 0
    while len(marks) < MOST_MARKS and (digit := digits.find(b"0", at)) >= 0:
        found = _MARK.search(text, max(at, digit - LOOK_BACK_BYTES), digit + LOOK_AHEAD_BYTES)
        if found is None:
            at = digit + 1
            continue
        marks.append((found.start(), found.end(), _KINDS[found.lastgroup or "number"]))
        at = found.end()
    return tuple(marks)


def without_marks(text: bytes, marks: tuple[Mark, ...]) -> bytes:
    """The text with each mark taken out."""
    if not marks:
        return text
    kept: list[bytes] = []
    at = 0
    for start, end, _ in marks:
        kept.append(text[at:start])
        at = end
    kept.append(text[at:])
    return b"#".join(kept)
