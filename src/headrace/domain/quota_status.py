"""How much of each limit is used at one moment: what `headrace quota` and `headrace budget` show."""

from collections.abc import Iterable, Sequence

import msgspec

from headrace.domain.quota import Level, Unit

ALIKE_S = 0.5
"""Workers that use slots hear of the others every 0.1 s. Chosen: a few times as long."""


class SlotsHere(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's share of slots that several hold together."""

    in_use: int
    """By requests in work."""
    held: int
    """Leased: in use, or ready for whoever comes next."""
    held_by_others: int
    """As the book said last."""
    told_s: float | None
    """How long ago that was; None: never."""


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. Amounts are in its unit's own measure (`domain.quota.Unit`)."""

    level: Level
    name: str
    """Of the organisation, tenant or project (`tenant/project`), or the key's id; empty for the gateway."""
    unit: Unit
    limit: int
    used: int
    """What counts against it now; more than `limit` in debt. Of slots: in work; what other instances hold counts whole,
    since of theirs nobody can tell from here."""
    leased: int | None = None
    """Of slots that several workers hold together: held by a worker, and in use by no request. They move to where
    requests are. None: nothing is leased."""
    reset_s: float | None
    """Until nothing would count, were nothing more used; None: not known (slots)."""
    here: SlotsHere | None = None
    """What one worker says of its share; of all workers together None."""

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)


def merge_limits(answers: Iterable[Iterable[LimitStatus]]) -> tuple[LimitStatus, ...]:
    """One row per limit from what several workers say of it.

    A worker knows what all have used as far as it was told, and its own use exactly: the largest figure is the
    nearest to the truth, and never counts anything twice. Of slots each knows its own, and what others hold: in use or
    not, which only they themselves can say.
    """
    seen: dict[tuple[Level, str, Unit], list[LimitStatus]] = {}
    for answer in answers:
        for one in answer:
            seen.setdefault((one.level, one.name, one.unit), []).append(one)
    return tuple(_merge(found) for found in seen.values())


def _merge(found: Sequence[LimitStatus]) -> LimitStatus:
    largest = max(found, key=lambda one: one.used)
    shares = [one.here for one in found if one.here is not None]
    if len(shares) < len(found):  # not of slots; or a worker of another version, which does not tell
        return msgspec.structs.replace(largest, here=None)
    used = sum(share.in_use for share in shares) + _held_elsewhere(shares)
    leased = sum(max(0, share.held - share.in_use) for share in shares)
    return msgspec.structs.replace(
        largest, used=used, leased=leased, reset_s=largest.reset_s if used else 0.0, here=None
    )


def _held_elsewhere(shares: Sequence[SlotsHere]) -> int:
    """What workers hold that are not among these: of other instances.

    Who was told last knows best. Of those told at about the same time the lowest figure counts: where one of them has
    given something back just now, the others have not heard of it.
    """
    told = [(share.told_s, share) for share in shares if share.told_s is not None]
    newest_s = min((told_s for told_s, _ in told), default=0.0)
    held = sum(share.held for share in shares)
    known = [share.held + share.held_by_others for told_s, share in told if told_s <= newest_s + ALIKE_S]
    return max(0, min(known, default=0) - held)
