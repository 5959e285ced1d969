"""Sees when budgets pass 80 and 100 percent, for metrics and the alerts that read them."""

from collections.abc import Iterable

from headrace.domain.quota import LimitId
from headrace.gateway.admission.core.meter import Meter

SHARES = (("0.8", 0.8), ("1", 1.0))
"""Shares of a budget that are worth a word. Source: issue of quotas: 80 % and 100 %."""
LOOK_S = 1.0
"""Between two looks. Chosen: a thousand budgets cost less than a millisecond."""


class BudgetWatch:
    """Budgets of all declared levels but keys, whose number is not bounded. Concurrency: event loop only."""

    def __init__(self) -> None:
        self.meters: tuple[Meter, ...] = ()
        self.marks: dict[tuple[LimitId, str], int] = {}
        """How often each share was passed."""
        self._is_over: set[tuple[LimitId, str]] = set()
        self._looked_mono_s = 0.0

    def adopt(self, meters: Iterable[Meter]) -> None:
        """Watch these."""
        self.meters = tuple(meters)

    def look(self, now_mono_s: float) -> None:
        """Count the shares that were passed since the last look."""
        if not self.meters or now_mono_s - self._looked_mono_s < LOOK_S:
            return
        self._looked_mono_s = now_mono_s
        for meter in self.meters:
            used = meter.used(now_mono_s)
            for name, share in SHARES:
                mark = (meter.limit_id, name)
                if used < share * meter.amount or not meter.amount:
                    self._is_over.discard(mark)
                elif mark not in self._is_over:
                    self._is_over.add(mark)
                    self.marks[mark] = self.marks.get(mark, 0) + 1
