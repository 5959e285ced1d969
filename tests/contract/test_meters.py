"""Every kind of meter keeps the same promises. The checks are in meter_checks.py."""

import pytest
from tests.contract.meter_checks import CHECKS, NOON_AT, NOON_MONO_S

from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset


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
