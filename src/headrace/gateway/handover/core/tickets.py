"""Tickets that were used: one prefill answer never reaches decode twice, whatever engines or retries repeat."""

from collections import OrderedDict

KEPT = 65_536
"""Keys remembered. Chosen: at 1,000 hand-overs a second a minute, twice as long as a vLLM lease."""


class SpentTickets:
    """The keys of one gateway process. Concurrency: one owner."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._keys: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def try_spend(self, key: str) -> bool:
        """Use a ticket; False: it was used before."""
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > self._kept:
            self._keys.popitem(last=False)
        return True
