"""All pairs of one model's prefill and decode engines: which go together, which do not, and of which it is not known.

Judged once for each two kinds of engine, however many engines there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.domain.routing_status import HandoverFit, PairMismatch
from headrace.engines.handover import find_handover_words
from headrace.engines.kv_shape import KnownShape, find_known_mismatch

MOST_NAMED = 5
"""Endpoints of one mismatch that are named; the others are counted."""
MOST_MISMATCHES = 20
"""Told of one model; they differ by what engines say."""


@dataclass(slots=True)
class _Apart:
    """Engines that one reason keeps apart."""

    prefills: dict[str, None] = field(default_factory=dict[str, None])
    decodes: dict[str, None] = field(default_factory=dict[str, None])
    pairs: int = 0


def fit_of(model: str, prefills: Mapping[str, KnownShape], decodes: Mapping[str, KnownShape]) -> HandoverFit:
    """Count the pairs; engines by name of their endpoint. One under both roles is no pair with itself."""
    counts = {"fits": 0, "unfit": 0, "not_measured": 0}
    apart: dict[str, _Apart] = {}
    givers, takers = _by_shape(prefills), _by_shape(decodes)
    for ours, left in givers.items():
        words = find_handover_words(ours.declared.engine)
        assert words is not None
        for theirs, right in takers.items():
            pairs = len(left) * len(right) - len(set(left) & set(right))
            if not pairs:
                continue
            why = find_known_mismatch(ours, theirs, words.fit_rules)
            if why is None:
                counts["fits" if ours.is_measured and theirs.is_measured else "not_measured"] += pairs
                continue
            counts["unfit"] += pairs
            found = apart.setdefault(why, _Apart())
            found.prefills |= dict.fromkeys(left)
            found.decodes |= dict.fromkeys(right)
            found.pairs += pairs
    mismatches = tuple(
        PairMismatch(why=why, prefills=_some(one.prefills), decodes=_some(one.decodes), pairs=one.pairs)
        for why, one in list(apart.items())[:MOST_MISMATCHES]
    )
    return HandoverFit(model=model, **counts, mismatches=mismatches)


def _by_shape(engines: Mapping[str, KnownShape]) -> dict[KnownShape, Sequence[str]]:
    found: dict[KnownShape, list[str]] = {}
    for name, shape in engines.items():
        found.setdefault(shape, []).append(name)
    return dict(found)


def _some(names: Iterable[str]) -> tuple[str, ...]:
    listed = list(names)
    more = len(listed) - MOST_NAMED
    return (*listed[:MOST_NAMED], f"and {more} more") if more > 0 else tuple(listed)
