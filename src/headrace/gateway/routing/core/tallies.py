"""Hits counted where they can be told apart: by tenant of a model, and by family of prompts that begin alike."""

from collections import OrderedDict
from dataclasses import dataclass

FAMILY_BLOCKS = 4
"""Prompts of one family have these blocks in common: their first kilobyte. Chosen: the beginning of a system prompt."""
MAX_FAMILIES = 256
"""Families kept of one worker; the one that was idle longest is forgotten first. Chosen."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Answers that told how much of their prompt was cached."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    expected_tokens: float = 0.0
    """What the index expected to be cached."""

    def add(self, input_tokens: int, cached_tokens: int, expected_tokens: float) -> None:
        self.requests += 1
        self.input_tokens += input_tokens
        self.cached_tokens += cached_tokens
        self.expected_tokens += expected_tokens


class Tallies:
    """One worker's counts since it started."""

    def __init__(self) -> None:
        self.by_tenant: dict[tuple[str, str], Tally] = {}
        """By model and tenant; both are declared names, so there are few."""
        self.by_family: OrderedDict[tuple[str, int], Tally] = OrderedDict()
        """By model and the name of the family's last common block."""

    def add(
        self,
        model: str,
        tenant: str,
        family: int | None,
        *,
        input_tokens: int,
        cached_tokens: int,
        expected_tokens: float,
    ) -> None:
        """Count one answer."""
        tally = self.by_tenant.get((model, tenant))
        if tally is None:
            tally = self.by_tenant[model, tenant] = Tally()
        tally.add(input_tokens, cached_tokens, expected_tokens)
        if family is None:
            return
        key = (model, family)
        tally = self.by_family.get(key)
        if tally is None:
            tally = self.by_family[key] = Tally()
            if len(self.by_family) > MAX_FAMILIES:
                self.by_family.popitem(last=False)
        else:
            self.by_family.move_to_end(key)
        tally.add(input_tokens, cached_tokens, expected_tokens)
