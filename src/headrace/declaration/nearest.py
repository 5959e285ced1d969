"""The nearest valid word for a wrong one."""

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN_WORDS = 24
"""How many allowed words a hint lists at most."""


def find_nearest(word: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that `word` was most likely meant to be."""
    words = list(allowed)
    by_folded = {candidate.casefold().replace("-", "_"): candidate for candidate in words}
    folded = word.casefold().replace("-", "_")
    close = get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Say which word was meant, or which there are."""
    words = list(allowed)
    nearest = find_nearest(word, words)
    if nearest is not None:
        return f'Did you mean "{nearest}"?'
    if not words:
        return "None is declared."
    return "There are: " + ", ".join(words[:SHOWN_WORDS]) + (", and more" if len(words) > SHOWN_WORDS else "") + "."
