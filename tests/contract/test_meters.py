"""Every kind of meter keeps the same promises. The checks are in meter_checks.py."""

import pytest
from tests.contract.meter_checks import CHECKS, NOON_AT, NOON_MONO_S

from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset
from headrace.tenancy.leases.core.book import LeaseBook


class Local:
    """Fulfils `MetersUnderTest`."""

    def __init__(self) -> None:
        self._wall = WallOffset(NOON_AT, NOON_MONO_S)
        self.factory = LocalMeters(self._wall)

    def settle(self, now_mono_s: float) -> None:
        """Nobody else has a share."""

    def follow_wall(self, now_at: float, now_mono_s: float) -> None:
        self._wall.follow(now_at, now_mono_s)


@pytest.mark.parametrize("check", CHECKS)
def test_meters_of_one_process(check: str) -> None:
    """The limits of a gateway that shares them with nobody."""
    CHECKS[check](Local())


class Leased:
    """Fulfils `MetersUnderTest`: a member of a book that another member shares."""

    def __init__(self) -> None:
        self._book = LeaseBook("g", member_s=float("inf"))
        self.factory = LeaseDesk("m", is_open=True, member_s=float("inf"), wake=lambda: None)
        self._other = LeaseDesk("other", is_open=True, member_s=float("inf"), wake=lambda: None)
        self._wall = WallOffset(NOON_AT, NOON_MONO_S)

    def settle(self, now_mono_s: float) -> None:
        """As many exchanges as a tenth of a second holds."""
        for desk, in_s in ((self.factory, 0.0), (self._other, 0.02), (self.factory, 0.04)):
            then_mono_s = now_mono_s + in_s
            message = desk.make_exchange(then_mono_s)
            reply = self._book.exchange(message, then_mono_s, then_mono_s + self._wall.offset_s)
            desk.adopt(reply, then_mono_s)

    def follow_wall(self, now_at: float, now_mono_s: float) -> None:
        self._wall.follow(now_at, now_mono_s)


@pytest.mark.parametrize("check", CHECKS)
def test_meters_that_lease_their_share(check: str) -> None:
    """The limits of a gateway that shares them with others."""
    CHECKS[check](Leased())
