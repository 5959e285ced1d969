"""Two fingerprints compared: where the second leaves the first, and why, as far as hashes and lengths tell."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.cache_misses.core.fingerprint import CHUNKED_BYTES, EDGES, LOOKED_BYTES, Fingerprint, Shape
from headrace.cache_misses.core.marks import Mark, MarkKind
from headrace.cache_misses.core.segments import PROMPT_PARAMETERS, Place
from headrace.domain.miss_status import MissCause

LEAST_COMMON_RATIO = 0.5
"""Of the shorter text's rest: with so much in common, one is the other with something put in or changed. Chosen."""
LEAST_MOVED_BYTES = 64
"""A single message that is found again further on counts from this length on: `yes` is said often."""
MARK_CAUSES = {
    MarkKind.TIME: MissCause.TIMESTAMP,
    MarkKind.ID: MissCause.IDENTIFIER,
    MarkKind.NUMBER: MissCause.NUMBER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two prompts part."""

    cause: MissCause
    segment: int
    """Number of the first segment that differs."""
    place: Place
    byte_offset: int
    grain_bytes: int
    """The first byte that differs is at `byte_offset` or less than so many bytes further on."""
    shared_bytes: int
    """Of both prompts, from the beginning to `byte_offset`."""


def shared_segments(one: Fingerprint, other: Fingerprint) -> int:
    """How many segments both begin with."""
    count = 0
    for mine, theirs in zip(one.shapes, other.shapes, strict=False):
        if mine.exact != theirs.exact:
            break
        count += 1
    return count


def compare(before: Fingerprint, after: Fingerprint) -> Difference | None:
    """Say where `after` leaves `before`; None where one is the beginning of the other, as a next turn is."""
    at = shared_segments(before, after)
    is_over = at == min(len(before.shapes), len(after.shapes))
    if is_over and (before.is_cut or after.is_cut or not _is_shortened(before, after, at)):
        return None
    where = after if at < len(after.shapes) else before
    place = where.places[at]
    old = before.shapes[at] if at < len(before.shapes) else None
    new = after.shapes[at] if at < len(after.shapes) else None
    offset, grain = _first_byte(old, new)
    if old is not None and new is not None and old.blocks == new.blocks and old.spaceless == new.spaceless:
        offset, grain = 0, 1  # the same text under another role or name
    mark = _mark_at(old, new, offset, grain)
    if mark is not None:
        start = max(offset, mark[0])
        grain = min(offset + grain, mark[1]) - start
        offset = start
    return Difference(
        cause=_cause(before, after, at, mark),
        segment=at,
        place=place,
        byte_offset=offset,
        grain_bytes=grain,
        shared_bytes=sum(shape.length_bytes for shape in before.shapes[:at]) + offset,
    )


def _is_shortened(before: Fingerprint, after: Fingerprint, at: int) -> bool:
    """One ended where the other has a tool: tools precede messages, so a prompt never grows by one."""
    longer = before if len(before.shapes) > at else after
    return at < len(longer.places) and longer.places[at].field.startswith("tools[")


def _first_byte(old: Shape | None, new: Shape | None) -> tuple[int, int]:
    """The first byte that differs, as far as blocks tell: offset and grain."""
    if old is None or new is None:
        return 0, 1
    for number, (mine, theirs) in enumerate(zip(old.blocks, new.blocks, strict=False)):
        if mine != theirs:
            return EDGES[number], EDGES[number + 1] - EDGES[number]
    shorter = min(old.length_bytes, new.length_bytes)
    if shorter > LOOKED_BYTES:
        return LOOKED_BYTES, shorter - LOOKED_BYTES + 1
    return shorter, 1


def _mark_at(old: Shape | None, new: Shape | None, offset: int, grain: int) -> Mark | None:
    """The time, id or number in which the difference begins: all that precedes it is equal, and it is not."""
    if old is None or new is None:
        return None
    twins = {mark[0]: (mark, hashes) for mark, hashes in zip(old.marks, old.mark_hashes, strict=True)}
    for (start, end, kind), (precedes, own) in zip(new.marks, new.mark_hashes, strict=True):
        twin = twins.get(start)
        if twin is None or start >= offset + grain:
            continue
        (_, other_end, other_kind), (other_precedes, other_own) = twin
        if max(end, other_end) <= offset or own == other_own or (start >= offset and precedes != other_precedes):
            continue
        return start, max(end, other_end), other_kind if kind is MarkKind.NUMBER else kind
    return None


def _cause(before: Fingerprint, after: Fingerprint, at: int, mark: Mark | None) -> MissCause:
    """The cases, in order: 1 a parameter, 2 tools, 3 the same text but for what nobody reads as different, 4 a time,
    id or number, 5 messages taken out or put in, 6 text of which much is the same.
    """
    place = after.places[at] if at < len(after.places) else before.places[at]
    other = before.places[at] if at < len(before.places) else place
    if place.field in PROMPT_PARAMETERS or other.field in PROMPT_PARAMETERS:
        return MissCause.PARAMETER
    if place.field.startswith("tools[") or other.field.startswith("tools["):
        return _cause_of_tools(before, after, mark)
    old, new = before.shapes[at], after.shapes[at]
    if place.field == other.field and place.role == other.role:
        same = _cause_of_form(old, new, mark)
        if same is not None:
            return same
    return _cause_of_messages(before, after, at, mark)


def _cause_of_form(old: Shape, new: Shape, mark: Mark | None) -> MissCause | None:
    if old.spaceless == new.spaceless:
        return MissCause.WHITE_SPACE
    if old.ordered == new.ordered:
        return MissCause.KEY_ORDER
    if old.masked == new.masked:
        kinds = {kind for _, _, kind in (*old.marks, *new.marks)}
        if mark is not None:
            return MARK_CAUSES[mark[2]]
        if kinds:
            return MARK_CAUSES[next(kind for kind in (MarkKind.TIME, MarkKind.ID, MarkKind.NUMBER) if kind in kinds)]
    return None


def _cause_of_tools(before: Fingerprint, after: Fingerprint, mark: Mark | None) -> MissCause:
    old, new = _tools(before), _tools(after)
    if Counter(shape.exact for shape in old) == Counter(shape.exact for shape in new):
        return MissCause.TOOL_ORDER
    if Counter(shape.ordered for shape in old) == Counter(shape.ordered for shape in new):
        in_place = all(mine.ordered == theirs.ordered for mine, theirs in zip(old, new, strict=True))
        return MissCause.KEY_ORDER if in_place else MissCause.TOOL_ORDER
    if len(old) == len(new):
        changed = [pair for pair in zip(old, new, strict=True) if pair[0].exact != pair[1].exact]
        causes = {_cause_of_form(mine, theirs, mark) for mine, theirs in changed}
        if len(causes) == 1 and (cause := causes.pop()) is not None:
            return cause
    return MissCause.TOOLS_CHANGED


def _tools(prompt: Fingerprint) -> list[Shape]:
    return [
        shape
        for place, shape in zip(prompt.places, prompt.shapes, strict=True)
        if place.message is None and place.field.startswith("tools[")
    ]


def _cause_of_messages(before: Fingerprint, after: Fingerprint, at: int, mark: Mark | None) -> MissCause:
    old, new = before.shapes[at:], after.shapes[at:]
    place = after.places[at]
    is_lead = place.role in ("system", "developer")
    if not is_lead and not before.is_cut:
        if _begins_later(new, old):
            return MissCause.FRONT_TRUNCATED
        if _begins_later(old, new):
            return MissCause.MESSAGE_INSERTED
    follows = _same_at_same_place(old[1:], new[1:])
    parting, _ = _first_byte(old[0], new[0])
    inside = shared_chunk_bytes(old[0], new[0], parting)
    behind = min(old[0].length_bytes, new[0].length_bytes, CHUNKED_BYTES) - parting
    is_reused = behind > 0 and inside >= LEAST_COMMON_RATIO * behind
    if mark is not None and (is_reused or follows) and mark[2] is not MarkKind.NUMBER:
        return MARK_CAUSES[mark[2]]
    if is_reused:
        return MissCause.DYNAMIC_CONTENT
    if follows:
        return MissCause.DYNAMIC_CONTENT if is_lead else MissCause.MESSAGE_EDITED
    if shared_content(before, after).after_bytes:
        return MissCause.DYNAMIC_CONTENT
    return MissCause.DIFFERENT


def _begins_later(some: Sequence[Shape], others: Sequence[Shape]) -> bool:
    """Whether `some` begin with what comes later in `others`."""
    if not some:
        return False
    for start in range(1, len(others)):
        length = min(len(some), len(others) - start)
        run = sum(1 for number in range(length) if some[number].exact == others[start + number].exact)
        if some[0].exact == others[start].exact and run >= max(1, length - 1):
            return run > 1 or some[0].length_bytes >= LEAST_MOVED_BYTES
    return False


def _same_at_same_place(old: Sequence[Shape], new: Sequence[Shape]) -> bool:
    return any(mine.masked == theirs.masked for mine, theirs in zip(old, new, strict=False))


def shared_chunk_bytes(one: Shape, other: Shape, from_byte: int = 0) -> int:
    """Bytes of the sentences and lines of `other` from a byte on that `one` has too."""
    mine = {name: length for name, _, length in one.chunks}
    return sum(min(length, mine.get(name, 0)) for name, start, length in other.chunks if start >= from_byte)


@dataclass(frozen=True, slots=True)
class SharedContent:
    """What two prompts have in common."""

    prefix_bytes: int
    after_bytes: int
    """Behind the place where they part, wherever it is there: lost to a cache of prefixes. Times and ids aside."""


def shared_content(before: Fingerprint, after: Fingerprint) -> SharedContent:
    """Measure what `after` could have shared with `before`, and what of that is a common beginning."""
    at = shared_segments(before, after)
    whole = sum(shape.length_bytes for shape in after.shapes[:at])
    old, new = before.shapes[at:], after.shapes[at:]
    if not old or not new:
        return SharedContent(whole, 0)
    inside, _ = _first_byte(old[0], new[0])
    left = Counter(shape.masked for shape in old)
    found = 0
    unmatched: list[Shape] = []
    for number, shape in enumerate(new):
        if left[shape.masked] > 0:
            left[shape.masked] -= 1
            found += shape.length_bytes - (inside if number == 0 else 0)
        else:
            unmatched.append(shape)
    rest = [shape for shape in old if left[shape.masked] > 0]
    ordered = {shape.ordered for shape in rest}
    chunks = {name: length for shape in rest for name, _, length in shape.chunks}
    for shape in unmatched:
        if shape.ordered in ordered or shape.spaceless in {each.spaceless for each in rest}:
            found += shape.length_bytes - (inside if shape is new[0] else 0)
            continue
        start_byte = inside if shape is new[0] else 0
        common = sum(min(length, chunks.get(name, 0)) for name, at, length in shape.chunks if at >= start_byte)
        found += min(common, shape.length_bytes - start_byte)
    return SharedContent(whole + inside, max(0, found))
