"""Calendar days and months in UTC, as arithmetic on epoch seconds: when a budget's period begins and ends."""

DAY_S = 86400


def day_of(at: float) -> tuple[float, float]:
    """Begin and end of the UTC day that holds `at`."""
    start_at = at // DAY_S * DAY_S
    return start_at, start_at + DAY_S


def month_of(at: float) -> tuple[float, float]:
    """Begin and end of the UTC month that holds `at`."""
    year, month = _year_and_month(int(at // DAY_S))
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return _days_before(year, month) * float(DAY_S), _days_before(*following) * float(DAY_S)


def _days_before(year: int, month: int) -> int:
    """Days from the epoch to the first of the month. Source: days_from_civil, Howard Hinnant's date algorithms."""
    if month <= 2:
        year -= 1
        month += 12
    era_day = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5
    return era_day - 719468


def _year_and_month(day: int) -> tuple[int, int]:
    """Source: civil_from_days, ibid.; days before 1970 are not asked for."""
    shifted = day + 719468
    era, day_of_era = divmod(shifted, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    months = (5 * day_of_year + 2) // 153
    month = months + 3 if months < 10 else months - 9
    return year_of_era + era * 400 + (month <= 2), month
