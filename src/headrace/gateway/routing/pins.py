"""Remembers which endpoint gave which stored answer (`/v1/responses`), so that a follow-up can reach it.

Approximate and per worker: a lost entry means that the caller is told to send its whole input.
"""

from collections import OrderedDict

PINS = 10000
"""Answers remembered; the oldest is forgotten first. Chosen: about 2 MB."""


class AnswerPins:
    """Answer id -> endpoint, per tenant, so that no tenant can continue another's conversation."""

    def __init__(self) -> None:
        self._pins: OrderedDict[tuple[str, str], str] = OrderedDict()

    def remember(self, tenant: str, answer_id: str, endpoint: str) -> None:
        self._pins[tenant, answer_id] = endpoint
        if len(self._pins) > PINS:
            self._pins.popitem(last=False)

    def find(self, tenant: str, answer_id: str) -> str | None:
        return self._pins.get((tenant, answer_id))
