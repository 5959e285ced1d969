"""What a member (one gateway process) and the keeper of the shared book say to each other, once per exchange.

The same words for the coordinator over its Unix socket and for the script in Redis. An exchange whose answer was lost
is sent again under its own serial, and is then answered from memory: each is counted once.
"""

from enum import StrEnum
from typing import Protocol

import msgspec

LIMITS_PER_EXCHANGE = 128
"""Reports in one exchange; more wait for the next one. Keeps an exchange in Redis at a few milliseconds."""
MEMBERS_MAX = 256
"""Processes that share one book."""
RECALLS_MAX = 256
"""Limits that one answer calls back."""
MESSAGE_BYTES = 1 << 20
"""Largest message on the coordinator's socket; an exchange of 128 reports has about 30 KB."""
SLOT_S = 0.5
"""Uses of a rate are counted by slots of so many seconds: a use counts for 60 to 60.5 s."""
WINDOW_SLOTS = 121
"""A slot counts until 60 seconds after its end: while the present slot is less than so many after it."""


class LeaseKind(StrEnum):
    """How a limit is used up and comes back."""

    SLOTS = "slots"
    """Held while a request is in work."""
    RATE = "rate"
    """What was used counts for the next 60 seconds."""
    DAY = "day"
    """Used up until the UTC day ends."""
    MONTH = "month"
    """Used up until the UTC month ends."""


class Use(msgspec.Struct, frozen=True, array_like=True):
    """What a member used (below 0: took back) at one time."""

    age_slots: int
    amount: int


class LeaseReport(msgspec.Struct, frozen=True, array_like=True):
    """One member's account of one limit.

    Units: slots, tokens, requests, GPU milliseconds or millionths of the currency, whole.
    """

    limit: str
    """The limit's id as text, the same for all members."""
    kind: LeaseKind
    amount: int
    """The declared limit, as this member's plan has it."""
    held: int
    """Leased and not given back: slots in use and free, or what the purse still has."""
    need: int
    """What has to be held for all requests that wait; up to `held`: none waits."""
    least: int
    """What has to be held for the smallest of them: less is of no use."""
    want: int
    """What the member would like to hold."""
    uses: tuple[Use, ...] = ()
    """What was used since the last exchange. Empty for slots."""
    floor: int = 0
    """Of a budget: what the ledger says was spent in `period`. The book counts at least that."""
    seen: int = 0
    """Of a budget: what the book had counted as spent at its last answer, for a book that has forgotten."""
    period: int = 0
    """Which period `floor`, `seen` and `open` are of."""
    open: int = 0
    """Of a budget: what requests in work have reserved and not settled. It is among the uses; of a member that dies it
    is given back, since nobody is charged for it."""
    was_open: int = 0
    """`open` as it was told last, for a book that gave it back because it took this member for dead."""


class Exchange(msgspec.Struct, frozen=True, array_like=True):
    """One member's message. Without reports it says that the member lives."""

    member: str
    """Random, one per process life."""
    serial: int
    """Grows with each exchange. The last one may be sent again, and gets the same answer."""
    generation: str
    """Of the book that answered last; empty before the first answer."""
    delay_slots: int
    """How long ago it was made, where it is sent again."""
    reports: tuple[LeaseReport, ...]


class LeaseAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What the book decided on one report."""

    limit: str
    grant: int
    """Added to what the member holds."""
    keep: int
    """Most it should hold: what is free above it goes back, since others wait."""
    free: int
    """Not leased and not used up, now; below 0 in debt."""
    used: int
    """Used up in the last minute or the period, by all members."""
    held_by_others: int
    wait_s: float
    """Until the need could be granted, as far as the book knows; 0: granted or unknown."""
    resets_in_s: float
    """Until nothing counts any more, were nothing more used; 0 for slots."""
    period: int


class ExchangeReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one exchange."""

    generation: str
    """Of the book: another one means that it began anew."""
    members: int
    """Living members, the asker included."""
    is_settling: bool
    """The book has just begun anew and waits for all members' reports: nothing is granted yet."""
    answers: tuple[LeaseAnswer, ...]
    recalls: tuple[str, ...]
    """Limits that some member waits for."""


class StoreLostError(Exception):
    """The book cannot be reached, or refused the exchange; the text says why, for a log."""


class LeaseStore(Protocol):
    """Where the book is kept. Concurrency: one exchange at a time."""

    async def exchange(self, message: Exchange) -> ExchangeReply:
        """Hand in reports and return the answers, in one round trip.

        Raises: StoreLostError, soon.
        """
        ...

    async def close(self) -> None:
        """Say good-bye: what the member holds is free at once, where the store can tell."""
        ...
