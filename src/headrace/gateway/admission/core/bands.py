"""Bands: which class of work is looked at first, when several have work that waits.

1. A band that has waited for its bound without being served goes first, the most overdue before the others.
2. A band that is owed what its next request takes, of its reserved share, goes next.
3. Otherwise the more urgent band: interactive, standard, offline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.flow import Flow, FlowHeap

BANDS = (RequestClass.INTERACTIVE, RequestClass.STANDARD, RequestClass.OFFLINE)
"""From the most urgent to the least."""
CREDIT_TOKENS = 16_384.0
"""A band is owed, or owes, at most so many tokens: old debts must not stop the others for long. Chosen: a few steps of
an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRules:
    """How one class of work is treated in one pool."""

    reserved_ratio: float
    """Of the tokens served while it has work waiting; 0: none."""
    starvation_s: float
    """Longest time it may wait without any of it being served, while others are."""


@dataclass(slots=True, kw_only=True)
class Band:
    """The flows of one class that have work waiting."""

    request_class: RequestClass
    rules: BandRules
    heap: FlowHeap = field(default_factory=FlowHeap)
    waiting: int = 0
    credit_tokens: float = 0.0
    """What it is owed of its reserved share; negative: what it had beyond it."""
    unserved_since_mono_s: float = 0.0
    """Since when it has had work waiting and none of it was served."""

    def overdue(self, now_mono_s: float) -> float:
        """How many times its bound it has waited; at 1 it goes first."""
        return (now_mono_s - self.unserved_since_mono_s) / self.rules.starvation_s

    def is_owed(self) -> bool:
        """Whether its reserved share has come to what its next request takes."""
        if self.credit_tokens <= 0.0:
            return False
        flow = self.heap.least()
        ticket = None if flow is None else flow.first()
        return ticket is not None and self.credit_tokens >= min(float(ticket.input_tokens), CREDIT_TOKENS)

    def began_waiting(self, now_mono_s: float) -> None:
        """Its first waiter has come: what was owed before is forgotten, as nobody waited for it."""
        self.unserved_since_mono_s = now_mono_s
        self.credit_tokens = min(self.credit_tokens, 0.0)


class BandTable:
    """The bands of one queue, and the order between them."""

    def __init__(self, rules: Mapping[RequestClass, BandRules]) -> None:
        self._bands = tuple(Band(request_class=each, rules=rules[each]) for each in BANDS)
        self._by_class = {band.request_class: band for band in self._bands}
        self.waiting_bands = 0

    def adopt(self, rules: Mapping[RequestClass, BandRules]) -> None:
        for band in self._bands:
            band.rules = rules[band.request_class]

    def __getitem__(self, request_class: RequestClass) -> Band:
        return self._by_class[request_class]

    def ordered(self, now_mono_s: float) -> list[Band]:
        """Return the bands that have work waiting, by the numbered cases above."""
        waiting = [band for band in self._bands if band.waiting]
        if len(waiting) > 1:
            waiting.sort(key=lambda band: _rank(band, now_mono_s))
        return waiting

    def charge(self, flow: Flow, tokens: float) -> None:
        """Tokens were served to `flow`: the bands that wait meanwhile are owed their share of them."""
        own = flow.request_class
        for band in self._bands:
            if not band.waiting or not band.rules.reserved_ratio:
                continue
            ratio = band.rules.reserved_ratio
            gained = -tokens * (1.0 - ratio) if band.request_class is own else tokens * ratio
            band.credit_tokens = max(-CREDIT_TOKENS, min(CREDIT_TOKENS, band.credit_tokens + gained))


def _rank(band: Band, now_mono_s: float) -> tuple[int, float]:
    overdue = band.overdue(now_mono_s)
    if overdue >= 1.0:
        return 0, -overdue
    if band.is_owed():
        return 1, -band.credit_tokens
    return 2, BANDS.index(band.request_class)
