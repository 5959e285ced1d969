"""Where time comes from. Cores take times as arguments; shells hold a Clock. Tests use a manual one."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks that must not be mixed: monotonic for durations and deadlines, wall for timestamps.

    Units: seconds.
    """

    def mono_s(self) -> float: ...

    def wall_at(self) -> datetime: ...

    def wall_s(self) -> float:
        """`wall_at` as UTC epoch seconds, for the hot path."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def mono_s(self) -> float:
        return time.monotonic()

    def wall_at(self) -> datetime:
        return datetime.now(tz=UTC)

    def wall_s(self) -> float:
        return time.time()  # noqa: TID251 (the one place it comes from)
