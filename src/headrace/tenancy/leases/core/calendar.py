"""UTC days and months as numbers, from the book's own clock. The script in Redis does the same arithmetic."""

from headrace.tenancy.leases.exchange import LeaseKind

DAY_S = 86400


def period_of(kind: LeaseKind, now_at: float) -> tuple[int, float]:
    """Return the number of the period that `now_at` (UTC epoch seconds) lies in, and the seconds until it ends.

    Kinds without a period: (0, 0.0).
    """
    if kind is LeaseKind.DAY:
        day = int(now_at // DAY_S)
        return day, (day + 1) * DAY_S - now_at
    if kind is LeaseKind.MONTH:
        day = int(now_at // DAY_S)
        year, month = civil_month(day)
        following = first_day(year + month // 12, month % 12 + 1)
        return year * 12 + month, following * DAY_S - now_at
    return 0, 0.0


def period_began_at(kind: LeaseKind, period: int) -> float:
    """UTC epoch seconds at which a period began; the inverse of `period_of`."""
    if kind is LeaseKind.DAY:
        return float(period * DAY_S)
    year, month = divmod(period - 1, 12)
    return float(first_day(year, month + 1) * DAY_S)


def civil_month(day: int) -> tuple[int, int]:
    """Year and month (1-12) of a day counted from 1970-01-01.

    Source: the proleptic Gregorian calendar, counted from 1 March 0000 in eras of 400 years (146,097 days).
    """
    shifted = day + 719468
    era, of_era = divmod(shifted, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * of_year + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    return year_of_era + era * 400 + (1 if month <= 2 else 0), month


def first_day(year: int, month: int) -> int:
    """Day, counted from 1970-01-01, on which a month begins; the inverse of `civil_month`."""
    shifted_year = year - 1 if month <= 2 else year
    era, year_of_era = divmod(shifted_year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719468
