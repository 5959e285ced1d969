"""How much of each limit is used at one moment: what `headrace quota` and `headrace budget` show."""

from collections.abc import Iterable

import msgspec

from headrace.domain.quota import Level, Unit


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. Amounts are in its unit's own measure (`domain.quota.Unit`)."""

    level: Level
    name: str
    """Of the organisation, tenant or project (`tenant/project`), or the key's id; empty for the gateway."""
    unit: Unit
    limit: int
    used: int
    """What counts against it now; more than `limit` in debt."""
    reset_s: float | None
    """Until nothing would count, were nothing more used; None: not known (slots)."""

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)


def merge_limits(answers: Iterable[Iterable[LimitStatus]]) -> tuple[LimitStatus, ...]:
    """One row per limit from what several workers say of it.

    A worker knows what all have used as far as it was told, and its own use exactly: the largest figure is the
    nearest to the truth, and never counts anything twice.
    """
    seen: dict[tuple[Level, str, Unit], LimitStatus] = {}
    for answer in answers:
        for one in answer:
            key = (one.level, one.name, one.unit)
            known = seen.get(key)
            if known is None or one.used > known.used:
                seen[key] = one
    return tuple(seen.values())
