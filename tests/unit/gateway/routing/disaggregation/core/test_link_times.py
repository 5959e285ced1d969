"""Transfer times that are learned."""

import pytest

from headrace.gateway.routing.disaggregation.core.link_times import FIRST_HANDSHAKE_S, LinkTimes


def learned(handshake_s: float, bytes_per_s: float, count: int = 60) -> LinkTimes:
    times = LinkTimes()
    for number in range(count):
        size_bytes = (1 + number % 10) * 2e7
        times.observe("p", "d", size_bytes=size_bytes, transfer_s=handshake_s + size_bytes / bytes_per_s)
    return times


def test_handshake_and_rate_are_learned_apart() -> None:
    """Small and large hand-overs are both predicted."""
    times = learned(0.01, 4e9)
    assert times.predict("p", "d", 1e8) == pytest.approx(0.035, rel=0.1)
    assert times.predict("p", "d", 2e6) == pytest.approx(0.0105, rel=0.2)
    assert times.rate_bytes_per_s("p", "d") == pytest.approx(4e9, rel=0.1)


def test_a_cold_pair_is_dear_and_its_first_time_teaches_nothing() -> None:
    """The first hand-over connects two engines: it is expected to take long, and is no measure of the link."""
    times = learned(0.01, 4e9)
    assert not times.is_warm("p", "e")
    assert times.predict("p", "e", 1e8) == pytest.approx(FIRST_HANDSHAKE_S + 0.035, rel=0.01)
    times.observe("p", "e", size_bytes=1e8, transfer_s=9.0)
    assert times.is_warm("p", "e")
    assert times.predict("p", "e", 1e8) == pytest.approx(0.035, rel=0.1)
    assert times.rate_bytes_per_s("p", "e") is None


def test_an_engine_that_starts_anew_is_cold() -> None:
    """Its connections are gone, on whichever side it was."""
    times = learned(0.01, 4e9)
    times.forget("d")
    assert not times.is_warm("p", "d")
