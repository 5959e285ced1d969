"""Why two prompts that should share a beginning do not: where they part, the probable cause, and what to do.

1. The later prompt goes on where the earlier ended, or repeats it: nothing is wrong.
2. Otherwise the first pieces that differ are compared without spaces, key order, times, ids and digits, in that order
   of trust; then what surrounds them tells reordered tools and rewritten or shortened histories apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.gateway.routing.core.shape import MARK_BYTES, Piece

BYTES_PER_TOKEN = 4.0
"""For offsets in tokens, where no engine has counted: English in today's vocabularies."""


class Cause(StrEnum):
    """Why. The value is what is shown."""

    OTHER_MODEL = "other model"
    TEMPLATE = "template arguments changed"
    WHITE_SPACE = "white space"
    KEY_ORDER = "order of keys"
    TOOL_ORDER = "order of tools"
    TOOLS_CHANGED = "tools changed"
    TIME = "date or time"
    ID = "id"
    NUMBER = "number"
    ROLE = "role changed"
    HISTORY_SHORTENED = "history shortened at its beginning"
    HISTORY_REWRITTEN = "history rewritten"
    EARLY_TEXT = "changing text placed early"
    OTHER_PROMPT = "another prompt"


ADVICE = {
    Cause.OTHER_MODEL: "prefixes are never shared between models: send both to one, or accept it",
    Cause.TEMPLATE: "template arguments change how the whole prompt is written: keep them the same in a conversation",
    Cause.WHITE_SPACE: "write the text from one template, without added blanks or line ends",
    Cause.KEY_ORDER: "write schemas with keys in a fixed order",
    Cause.TOOL_ORDER: "sort the tools by name before sending them",
    Cause.TOOLS_CHANGED: "offer the same tools in every turn, or move those that change into the last message",
    Cause.TIME: "move the date or time to the end of the prompt, or round it to the day",
    Cause.ID: "move ids (request, session, user) out of the prompt, or to its end",
    Cause.NUMBER: "move the number that changes to the end of the prompt",
    Cause.ROLE: "keep the roles of earlier messages as they were",
    Cause.HISTORY_SHORTENED: "shorten seldom and by a lot: each cut at the beginning computes all that follows again",
    Cause.HISTORY_REWRITTEN: "send earlier messages exactly as they were; summarise only when it pays",
    Cause.EARLY_TEXT: "put what stays the same first, and what changes last",
    Cause.OTHER_PROMPT: "nothing: these prompts have little in common",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two prompts part."""

    place: str
    """In the later request: `messages[0].content`."""
    message: int | None
    """Index of the message, where it is in one."""
    byte_offset: int
    """Into that piece: they are equal up to here, and differ within the next MARK_BYTES."""
    shared_bytes: int
    """Of the whole prompt, before they part."""
    lost_bytes: int
    """Of the earlier prompt, after that: what is computed again although it had been."""
    cause: Cause

    @property
    def advice(self) -> str:
        return ADVICE[self.cause]

    @property
    def shared_tokens(self) -> int:
        """Estimated."""
        return round(self.shared_bytes / BYTES_PER_TOKEN)

    @property
    def lost_tokens(self) -> int:
        """Estimated."""
        return round(self.lost_bytes / BYTES_PER_TOKEN)


def find_divergence(earlier: Sequence[Piece], later: Sequence[Piece]) -> Divergence | None:
    """Compare two prompts; None where the later one goes on from the earlier, or says the same."""
    common = 0
    while common < min(len(earlier), len(later)) and earlier[common].exact == later[common].exact:
        common += 1
    if common == len(earlier):
        return None
    before, after = earlier[common], later[common] if common < len(later) else None
    shared = sum(piece.size_bytes for piece in later[:common])
    offset = _offset(before, after) if after is not None else 0
    if after is not None and _is_continued(before, after, is_last=common == len(earlier) - 1, offset=offset):
        return None
    place = after.place if after is not None else before.place
    return Divergence(
        place=place,
        message=_message_index(place),
        byte_offset=offset,
        shared_bytes=shared + offset,
        lost_bytes=sum(piece.size_bytes for piece in earlier[common:]) - offset,
        cause=_cause(earlier, later, common),
    )


def _is_continued(before: Piece, after: Piece, *, is_last: bool, offset: int) -> bool:
    """The last text of the earlier prompt goes on in the later one (completions, a longer answer)."""
    return (
        is_last
        and before.kind == after.kind
        and after.size_bytes > before.size_bytes
        and offset >= before.size_bytes - before.size_bytes % MARK_BYTES
    )


def _offset(before: Piece, after: Piece) -> int:
    count = 0
    for one, other in zip(before.marks, after.marks, strict=False):
        if one != other:
            break
        count += 1
    return count * MARK_BYTES


def _cause(earlier: Sequence[Piece], later: Sequence[Piece], common: int) -> Cause:
    before, after = earlier[common], later[common] if common < len(later) else None
    if before.kind in ("model", "template") or (after is not None and after.kind in ("model", "template")):
        return Cause.OTHER_MODEL if before.kind == "model" else Cause.TEMPLATE
    if before.kind == "tool" or (after is not None and after.kind == "tool"):
        return _tool_cause(earlier, later, before, after)
    if after is None:
        return Cause.HISTORY_SHORTENED
    if before.kind != after.kind and before.timeless == after.timeless:
        return Cause.ROLE
    if before.kind == after.kind:
        found = _text_cause(before, after)
        if found is not None:
            return found
    following = [piece.exact for piece in earlier[common + 1 :]]
    if following and _begins_with_a_later_part(following, [piece.exact for piece in later[common:]]):
        return Cause.HISTORY_SHORTENED
    if before.kind == "system":
        return Cause.EARLY_TEXT
    if common and set(following) & {piece.exact for piece in later[common + 1 :]}:
        return Cause.HISTORY_REWRITTEN
    return Cause.OTHER_PROMPT


def _text_cause(before: Piece, after: Piece) -> Cause | None:
    for name, cause in (
        ("spaceless", Cause.WHITE_SPACE),
        ("canonical", Cause.KEY_ORDER),
        ("timeless", Cause.TIME),
        ("idless", Cause.ID),
        ("digitless", Cause.NUMBER),
    ):
        if getattr(before, name) == getattr(after, name):
            return cause
    return None


def _tool_cause(earlier: Sequence[Piece], later: Sequence[Piece], before: Piece, after: Piece | None) -> Cause:
    old = sorted(piece.exact for piece in earlier if piece.kind == "tool")
    new = sorted(piece.exact for piece in later if piece.kind == "tool")
    if old == new:
        return Cause.TOOL_ORDER
    if after is not None and after.kind == before.kind:
        found = _text_cause(before, after)
        if found is not None:
            return found
    return Cause.TOOLS_CHANGED


def _begins_with_a_later_part(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether `new` begins with the rest of `old` after some of its beginning was left out."""
    for start in range(len(old)):
        rest = old[start:]
        if rest == list(new[: len(rest)]):
            return True
    return False


def _message_index(place: str) -> int | None:
    name, bracket, rest = place.partition("[")
    if not bracket or name not in ("messages", "input", "prompt"):
        return None
    return int(rest.partition("]")[0])
