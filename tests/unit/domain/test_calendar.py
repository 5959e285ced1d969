"""UTC days and months against the standard library's calendar."""

from datetime import UTC, datetime, timedelta

from headrace.domain.calendar import day_of, month_of


def test_days_and_months_are_those_of_the_calendar() -> None:
    """Every six hours of ten years, leap years among them, and the seconds around each midnight."""
    moment = datetime(2023, 1, 1, tzinfo=UTC)
    while moment.year < 2033:
        for at in (moment, moment - timedelta(seconds=1)):
            day = at.replace(hour=0, minute=0, second=0)
            month = day.replace(day=1)
            following = (month + timedelta(days=32)).replace(day=1)
            assert day_of(at.timestamp()) == (day.timestamp(), (day + timedelta(days=1)).timestamp())
            assert month_of(at.timestamp()) == (month.timestamp(), following.timestamp())
        moment += timedelta(hours=6)
