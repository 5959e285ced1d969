"""The soak's judgement: memory, gauges and ledger rows."""

from benchmarks.soak import SoakResult, find_complaints, growth, read_gauges

MIB = 1048576


def test_growth_is_counted_after_the_first_mark() -> None:
    """A process's memory is compared with what it had once warm; processes that came or went are not."""
    looks = [
        {"requests": 100, "rss_bytes": {"1 gateway": 40 * MIB, "2 gone": MIB}},
        {"requests": 200, "rss_bytes": {"1 gateway": 47 * MIB, "3 came": MIB}},
    ]
    assert growth(looks) == {"1 gateway": 7 * MIB}
    assert growth([]) == {}


def test_in_flight_gauges_are_read_from_the_exposition() -> None:
    """Only headrace's own in-flight series count."""
    text = 'headrace_in_flight_requests{model="m"} 2\nheadrace_requests_total 9\nheadrace_in_flight 0.0\n'
    assert read_gauges(text) == {'headrace_in_flight_requests{model="m"}': 2.0, "headrace_in_flight": 0.0}


def test_each_broken_promise_is_a_complaint() -> None:
    """Growth at the bound, a gauge above zero and a missing row are each named."""
    result = SoakResult(sent=100, unexpected=0, kinds={}, first_failure="")
    assert find_complaints(result) == []
    result.growth_bytes = {"1 gateway": 5 * MIB, "2 ledger": 5 * MIB - 1}
    result.in_flight = {"headrace_in_flight": 1.0}
    result.ledger_rows = 99
    assert find_complaints(result) == [
        "memory of 1 gateway grew by 5.0 MiB, more than 5",
        "headrace_in_flight is 1, not 0",
        "the ledger has 99 rows for 100 requests",
    ]
