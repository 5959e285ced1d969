"""Budget periods as numbers: the UTC day on which each began. The script in Redis counts the same by its own clock."""

from headrace.domain.calendar import DAY_S, day_of, month_of
from headrace.tenancy.leases.exchange import LeaseKind


def period_of(kind: LeaseKind, now_at: float) -> tuple[int, float]:
    """Return the number of the period that `now_at` (UTC epoch seconds) lies in, and the seconds until it ends.

    Kinds without a period: (0, 0.0).
    """
    if kind is not LeaseKind.DAY and kind is not LeaseKind.MONTH:
        return 0, 0.0
    start_at, end_at = (day_of if kind is LeaseKind.DAY else month_of)(now_at)
    return int(start_at // DAY_S), end_at - now_at


def length_s(kind: LeaseKind, period: int) -> float:
    """How long a period of that number is."""
    start_at = float(period * DAY_S)
    return period_of(kind, start_at)[1]
