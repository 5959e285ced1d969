"""What one caller may use, over all levels: taken before dispatch, all or nothing, and settled after. Pure.

Counterpart: `admission/quota.py`, which makes purses of a plan and tells callers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.domain.quota import SLOTS, RequestCaps, Unit
from headrace.domain.record import Record
from headrace.gateway.admission.core.leased_purse import LeasedPurse
from headrace.gateway.admission.core.local_meters import LocalMeter
from headrace.gateway.admission.core.meter import Meter
from headrace.gateway.admission.core.rate_headers import RateHeaders

INDEX = {unit: index for index, unit in enumerate(Unit)}
REQUESTS, INPUT, OUTPUT, GPU = (
    INDEX[Unit.REQUESTS_PER_MIN],
    INDEX[Unit.INPUT_TOKENS_PER_MIN],
    INDEX[Unit.OUTPUT_TOKENS_PER_MIN],
    INDEX[Unit.GPU_SECONDS_PER_MIN],
)
CONCURRENT, INTERACTIVE, STREAMING, OFFLINE = (
    INDEX[Unit.CONCURRENT_REQUESTS],
    INDEX[Unit.CONCURRENT_INTERACTIVE],
    INDEX[Unit.CONCURRENT_STREAMING],
    INDEX[Unit.CONCURRENT_OFFLINE],
)
DAY, MONTH = INDEX[Unit.BUDGET_PER_DAY], INDEX[Unit.BUDGET_PER_MONTH]
SLOT_INDEXES = frozenset(INDEX[unit] for unit in SLOTS)

Amounts = list[int]
"""One number for each Unit, at its INDEX: 0 where a request uses none of it."""


def no_amounts() -> Amounts:
    return [0] * len(INDEX)


class Purse:
    """All meters that a caller is under, the widest level first, and the tightest caps of a single request."""

    __slots__ = ("_local", "budgets", "caps", "has_headers", "headers", "meters", "most_output_tokens", "needs_bill")

    def __init__(self, meters: Sequence[Meter], caps: RequestCaps | None) -> None:
        self.meters = tuple((INDEX[meter.limit_id.unit], meter) for meter in meters)
        local = [(index, meter.try_take) for index, meter in self.meters if isinstance(meter, LocalMeter)]
        self._local = tuple(local) if len(local) == len(self.meters) else None
        """Of all meters, where none is shared with other processes."""
        self.budgets = tuple(
            (index, meter) for index, meter in self.meters if isinstance(meter, LeasedPurse) and meter.is_budget
        )
        """Shared with other processes, which must be able to tell what is only reserved here. Empty where none is."""
        self.caps = caps
        """None where nothing is capped."""
        self.needs_bill = any(index in (GPU, DAY, MONTH) for index, _ in self.meters)
        """A level limits GPU time or money, so that what a request may cost has to be known before."""
        outputs = [meter.amount for index, meter in self.meters if index == OUTPUT]
        self.most_output_tokens = max(min(outputs), 1) if outputs else None
        """No more is reserved for an answer whose length nobody knows; None: no level limits output."""
        self.headers = RateHeaders(
            [meter for index, meter in self.meters if index == REQUESTS],
            [meter for index, meter in self.meters if index in (INPUT, OUTPUT)],
        )
        self.has_headers = not self.headers.is_empty

    def try_reserve(self, amounts: Amounts, now_mono_s: float) -> "Reservation | Shortage":
        """Take `amounts` from every meter, or nothing at all and say which one is short for longest."""
        local = self._local
        if local is None:
            return self._try_reserve_shared(amounts, now_mono_s)
        for index, try_take in local:
            amount = amounts[index]
            if amount and not try_take(amount, now_mono_s):
                return self._undo(try_take, amounts, now_mono_s)
        return Reservation(self, amounts, now_mono_s)

    def _undo(self, refused: Callable[[int, float], bool], amounts: Amounts, now_mono_s: float) -> "Shortage":
        """Take back what was taken before the meter that refused, and say what is short."""
        for index, meter in self.meters:
            assert isinstance(meter, LocalMeter)
            if meter.try_take == refused:
                break
            if amounts[index]:
                meter.undo(amounts[index], now_mono_s)
        shortage = self._find_shortage(amounts, now_mono_s)
        assert shortage is not None
        return shortage

    def _try_reserve_shared(self, amounts: Amounts, now_mono_s: float) -> "Reservation | Shortage":
        shortage = self._find_shortage(amounts, now_mono_s)
        if shortage is not None:
            return shortage
        for index, meter in self.meters:
            amount = amounts[index]
            if amount:
                meter.take(amount, now_mono_s)
        for index, budget in self.budgets:
            budget.begin(amounts[index])
        return Reservation(self, amounts, now_mono_s)

    def _find_shortage(self, amounts: Amounts, now_mono_s: float) -> "Shortage | None":
        shortage: Shortage | None = None
        for index, meter in self.meters:
            amount = amounts[index]
            if amount:
                wait_s = meter.wait_s(amount, now_mono_s)
                if wait_s > 0.0 and (shortage is None or wait_s > shortage.wait_s):
                    shortage = Shortage(meter=meter, amount=amount, wait_s=wait_s)
        return shortage


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a request may not start now: the limit that is short for longest."""

    meter: Meter
    amount: int
    """What the request needs of it."""
    wait_s: float
    """Until it could start; infinity: never under this limit."""


class Reservation(Record):
    """What one request holds, until it is settled; exactly once, whatever its end."""

    purse: Purse
    held: Amounts
    taken_mono_s: float
    late_slots: tuple[Meter, ...] = ()
    """Slots of limits that were declared while the request was in work."""
    is_settled: bool = False
    growths: tuple[tuple[float, Amounts], ...] = ()
    """What was held in addition later, and when: it is given back out of that time."""

    @property
    def expected_output_tokens(self) -> int:
        return self.held[OUTPUT]

    def grow(self, amounts: Amounts, now_mono_s: float) -> None:
        """Hold at least `amounts`, since the answer has become longer than was reserved. Never refuses."""
        held = self.held
        more = [wanted - has if wanted > has else 0 for wanted, has in zip(amounts, held, strict=True)]
        for index, meter in self.purse.meters:
            if more[index]:
                meter.charge(more[index], now_mono_s)
        for index, budget in self.purse.budgets:
            budget.begin(more[index])
        self.growths += ((now_mono_s, more),)
        self.held = [has + added for has, added in zip(held, more, strict=True)]

    def settle(self, used: Amounts, now_mono_s: float) -> None:
        """Give back what was not used, charge what was used beyond; slots go back whole. Later calls do nothing."""
        if self.is_settled:
            return
        self.is_settled = True
        held, taken_mono_s = self.held, self.taken_mono_s
        for index, meter in self.purse.meters:
            surplus = held[index] - used[index]
            if surplus > 0:
                if self.growths:
                    surplus = self._give_back_growth(index, meter, surplus, now_mono_s)
                meter.give_back(surplus, taken_mono_s, now_mono_s)
            elif surplus < 0:
                meter.charge(-surplus, now_mono_s)
        for index, budget in self.purse.budgets:
            budget.end(held[index], taken_mono_s, now_mono_s)
        for meter in self.late_slots:
            meter.give_back(1, taken_mono_s, now_mono_s)

    def _give_back_growth(self, index: int, meter: Meter, surplus: int, now_mono_s: float) -> int:
        """Give back of `surplus` what came by growth, the latest first; the rest is of the beginning."""
        for grown_mono_s, more in reversed(self.growths):
            part = min(surplus, more[index])
            if part:
                meter.give_back(part, grown_mono_s, now_mono_s)
                surplus -= part
        return surplus

    def move_under(self, purse: Purse, now_mono_s: float) -> None:
        """Count in the slots of a purse made after the request began: a limit that is declared now sees it too."""
        if self.is_settled:
            return
        counted = {id(meter) for _, meter in self.purse.meters} | {id(meter) for meter in self.late_slots}
        for index, meter in purse.meters:
            if index in SLOT_INDEXES and self.held[index] and id(meter) not in counted:
                meter.take(1, now_mono_s)
                self.late_slots += (meter,)

    def __repr__(self) -> str:
        state = "settled" if self.is_settled else "open"
        return f"Reservation({state}, {len(self.purse.meters)} meters)"
