"""What may be asked for when creating a key, at its bounds."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.tenancy.key_wish import LONGEST_S, KeyWishError, expiry, parse_span_s, read_limits

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span_s"), [("0s", 0), ("90m", 5400), ("12h", 43200), ("30d", 2592000), (" 2 w ", 1209600)]
)
def test_lengths_of_time_are_a_number_and_a_unit(text, span_s):
    """As an operator writes them."""
    assert parse_span_s(text) == span_s


@pytest.mark.parametrize("text", ["", "d", "1", "1.5h", "-1d", "1y", "1d2h", "1000000000000s"])
def test_other_lengths_are_refused(text):
    """With what would be right."""
    with pytest.raises(KeyWishError, match="90m, 12h, 30d or 2w"):
        parse_span_s(text)


def test_no_expiry_is_for_ever():
    """None stays None."""
    assert expiry(NOW, None) is None


@pytest.mark.parametrize("span_s", [1, LONGEST_S])
def test_expiry_counts_from_now(span_s):
    """The bounds themselves are allowed."""
    assert expiry(NOW, span_s) == NOW + timedelta(seconds=span_s)


@pytest.mark.parametrize("span_s", [0, -1, LONGEST_S + 1, float("nan"), float("inf")])
def test_a_key_that_is_dead_or_undying_is_refused(span_s):
    """Such a key is a mistake."""
    with pytest.raises(KeyWishError, match="between 1 second and 100 years"):
        expiry(NOW, span_s)


def test_a_limit_that_does_not_exist_is_named_with_the_nearest():
    """In the words of `headrace tenants`, at every depth."""
    with pytest.raises(KeyWishError) as refused:
        read_limits({"request_per_min": 1, "per_request": {"outputs_tokens": 1}}, {})
    assert str(refused.value).splitlines() == [
        'limits.per_request.outputs_tokens: there is no such key. Did you mean "output_tokens"?',
        'limits.request_per_min: there is no such key. Did you mean "requests_per_min"?',
    ]
