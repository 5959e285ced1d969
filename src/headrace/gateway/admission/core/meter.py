"""What a quota asks of one limit, whoever keeps it: this process alone, or a share leased from a coordinator or Redis.

Amounts are whole numbers: tokens, requests, microseconds of GPU time, billionths of the currency. `tests/contract/
test_meters.py` is the suite that every kind passes.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.domain.quota import LimitId


class Meter(Protocol):
    """One limit and what is used of it.

    Concurrency: event loop only. `wait_s` looks and `take` counts in the same turn, so that several meters can be asked
    first and then taken together, and no parallel caller comes in between (PAINS 5).
    """

    limit_id: LimitId
    amount: int
    """The declared limit."""

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        """Seconds until `amount` could be taken, as far as is known; 0.0: now; infinity: never under this limit."""
        ...

    def take(self, amount: int, now_mono_s: float) -> None:
        """Count `amount`, which `wait_s` has just allowed."""
        ...

    def give_back(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        """Return what was taken at `taken_mono_s` and not used: all of it where the request cost nothing.

        What no longer counts (its window or calendar period has passed) is not given back a second time.
        """
        ...

    def charge(self, amount: int, now_mono_s: float) -> None:
        """Count what was used beyond what was taken. Never refuses: it goes into debt, and others wait."""
        ...

    def used(self, now_mono_s: float) -> int:
        """What counts against the limit now, as far as is known here; more than the limit in debt."""
        ...

    def reset_s(self, now_mono_s: float) -> float:
        """Seconds until nothing would count against it, were nothing more taken. Infinity or an estimate for slots."""
        ...


class MeterFactory(Protocol):
    """Where meters come from; one per worker. A meter lives as long as its limit is declared, over reloads.

    Concurrency: event loop only.
    """

    def meter(self, limit_id: LimitId, amount: int, now_mono_s: float) -> Meter:
        """The meter of a limit, made at first use. Asked with another amount, it takes that on and keeps its count."""
        ...

    def raise_spent(self, limit_id: LimitId, spent: int, period_start_at: float) -> None:
        """The ledger says that so much has been spent of a budget in the calendar period that began at
        `period_start_at` (UTC epoch seconds): the meter counts at least that. Unknown and past periods are ignored.
        """
        ...

    def keep_only(self, limit_ids: frozenset[LimitId]) -> None:
        """Forget meters of other limits, unless something is held of them: they are no longer declared."""
        ...

    def find_outage(self) -> str | None:
        """Why no share can be had at all: limits are shared, their store is out of reach, and the declared policy is to
        serve nothing without it. None: shortages are real ones.
        """
        ...

    def await_share(self, meter: Meter, now_mono_s: float, resume: Callable[[], None]) -> bool:
        """Whether a shortage of `meter`, just found, may end with the next exchange with other processes: `resume` is
        called after it, once, some milliseconds from now. False: the shortage is what it is.
        """
        ...
