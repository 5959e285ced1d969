from datetime import UTC, datetime

import pytest

from headrace.tenancy.leases.core.periods import length_s, period_of
from headrace.tenancy.leases.exchange import LeaseKind


@pytest.mark.parametrize(
    ("kind", "moment", "began", "ends"),
    [
        (LeaseKind.DAY, datetime(2026, 11, 30, 12, tzinfo=UTC), datetime(2026, 11, 30, tzinfo=UTC), 43200.0),
        (LeaseKind.MONTH, datetime(2026, 11, 30, 12, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC), 43200.0),
        (LeaseKind.MONTH, datetime(2028, 2, 28, tzinfo=UTC), datetime(2028, 2, 1, tzinfo=UTC), 2 * 86400.0),
        (LeaseKind.MONTH, datetime(2026, 12, 31, 23, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC), 3600.0),
    ],
)
def test_a_period_is_named_by_its_first_day(kind: LeaseKind, moment: datetime, began: datetime, ends: float) -> None:
    """Budgets begin and end with UTC days and months, leap years included."""
    period, resets_in_s = period_of(kind, moment.timestamp())
    assert period * 86400 == began.timestamp()
    assert resets_in_s == ends
    assert length_s(kind, period) == moment.timestamp() + ends - began.timestamp()


def test_rates_and_slots_have_no_period() -> None:
    """What comes back within a minute knows no calendar."""
    assert period_of(LeaseKind.RATE, 1e9) == (0, 0.0)
