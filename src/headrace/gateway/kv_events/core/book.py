"""What one endpoint's cache holds, added up from its events, and whether any of them are missing.

Each data-parallel rank counts its messages from 0:

1. the number expected: the changes are added up;
2. a higher one: those between are missing. Who reads may ask the engine for them first (`missing_before`); what still
   is missing then leaves the counts unknown until the cache is cleared or the engine starts anew;
3. a lower one: the engine was started anew, its cache is empty, and counting begins again;
4. one that cannot be a number, or is farther ahead than MOST_MISSING: not believed, unless the next one goes on from
   there;
5. any one after a new connection: whether it is the same process cannot be seen, so that all before it is missing.
"""

from dataclasses import dataclass

from headrace.gateway.kv_events.core.changes import Change, Cleared, Removed, Sized, Stored, Tier

MOST_RANKS = 1024
"""Of one endpoint; messages of more are not counted. Chosen: no engine has as many."""
MOST_NUMBER = 2**63 - 1
"""Source: vLLM and SGLang send it as 8 bytes with a sign; -1 means the end."""
MOST_MISSING = 1_000_000
"""Messages that may be missing in a row, before a number is taken for nonsense. Chosen: hours of a busy engine."""


@dataclass(slots=True)
class RankBook:
    """One rank's cache. Blocks of one engine are all of one size."""

    next_number: int = 0
    is_doubtful: bool = False
    """The next message may be another process's."""
    is_whole: bool = True
    """Nothing is missing: the counts are what the engine holds."""
    device_blocks: int = 0
    beyond_blocks: int = 0
    block_tokens: int = 0
    far_number: int | None = None
    """The last one that was too far ahead to be believed by itself."""

    def begin_again(self) -> None:
        """The cache is empty."""
        self.device_blocks = self.beyond_blocks = 0
        self.is_whole = True


class CacheBook:
    """One endpoint. Not for use by several threads at once."""

    def __init__(self, ranks: int = 1) -> None:
        self._expected_ranks = ranks
        self._ranks: dict[int, RankBook] = {}
        self.messages = 0
        self.missed = 0
        """Messages that never came, asked for again or not."""
        self.replayed = 0
        """Messages that came when they were asked for again."""
        self.malformed = 0
        """Messages that could not be read."""
        self.unknown = 0
        """Events of kinds that are not known."""
        self.stored_blocks = 0
        self.removed_blocks = 0
        self.clears = 0
        self.restarts = 0
        self.capacity_tokens: int | None = None
        """What the device holds, where the engine's events tell it."""
        self._sized_blocks: int | None = None

    def believes(self, rank: int, number: int) -> bool:
        """Whether a message can have this number. Asked once for each message, before anything else."""
        if not 0 <= number <= MOST_NUMBER:
            return False
        book = self._ranks.get(rank)
        if book is None or book.is_doubtful or number - book.next_number <= MOST_MISSING:
            return True
        goes_on = book.far_number is not None and 0 < number - book.far_number <= MOST_MISSING
        book.far_number = number
        book.is_whole = False
        return goes_on

    def missing_before(self, rank: int, number: int) -> range:
        """Return the numbers of the messages that are missing before this one; noted where the engine began anew."""
        book = self._ranks.get(rank)
        if book is None:
            book = RankBook()
            if len(self._ranks) < MOST_RANKS:
                self._ranks[rank] = book
        if number < book.next_number or book.is_doubtful:
            self.restarts += number < book.next_number
            book.next_number = 0
            book.is_doubtful = False
            book.begin_again()
        return range(book.next_number, number)

    def add(self, rank: int, number: int, changes: tuple[Change, ...]) -> None:
        """Add one message up; what is missing before it will not come any more."""
        missing = len(self.missing_before(rank, number))
        book = self._ranks.get(rank)
        if book is None:
            return
        if missing:
            self.missed += missing
            book.is_whole = False
        book.next_number = number + 1
        self.messages += 1
        for change in changes:
            self._apply(book, change)

    def doubt(self, rank: int) -> None:
        """The connection is a new one."""
        if (book := self._ranks.get(rank)) is not None:
            book.is_doubtful = True

    def lose(self, rank: int, number: int) -> None:
        """A message came that cannot be read: what it said is missing."""
        self.malformed += 1
        self.add(rank, number, ())
        if (book := self._ranks.get(rank)) is not None:
            book.is_whole = False

    def lose_sight(self, rank: int) -> None:
        """A message was passed over, through a fault of ours."""
        self.malformed += 1
        if (book := self._ranks.get(rank)) is not None:
            book.is_whole = False

    @property
    def is_whole(self) -> bool:
        """Every rank has been heard of, and of none is anything missing."""
        return len(self._ranks) >= self._expected_ranks and all(book.is_whole for book in self._ranks.values())

    def held_tokens(self, tier: Tier | None = None) -> int | None:
        """Tokens that can be found in the cache, of one tier or of all; None: not known."""
        if not self.is_whole:
            return None
        return sum(_blocks(book, tier) * book.block_tokens for book in self._ranks.values())

    @property
    def losses(self) -> int | None:
        """Grows whenever something has gone from the cache; None where some of it may not have been heard of."""
        return self.removed_blocks + self.clears + self.restarts if self.is_whole else None

    @property
    def emptyings(self) -> int:
        """How often all was forgotten at once."""
        return self.clears + self.restarts

    def _apply(self, book: RankBook, change: Change) -> None:
        match change:
            case Stored():
                book.block_tokens = change.block_tokens or book.block_tokens
                self.stored_blocks += change.blocks
                _count(book, change.tier, change.blocks)
            case Removed():
                self.removed_blocks += change.blocks
                _count(book, change.tier, -change.blocks)
            case Cleared():
                self.clears += 1
                book.begin_again()
            case Sized():
                self._sized_blocks = change.blocks
        if isinstance(change, (Stored, Sized)) and self._sized_blocks is not None and book.block_tokens:
            self.capacity_tokens = self._sized_blocks * book.block_tokens * max(1, len(self._ranks))

    def __repr__(self) -> str:
        return f"CacheBook({self.messages} messages, {self.missed} missed, holds {self.held_tokens()} tokens)"


def _blocks(book: RankBook, tier: Tier | None) -> int:
    if tier is None:
        return book.device_blocks + book.beyond_blocks
    return book.device_blocks if tier is Tier.DEVICE else book.beyond_blocks


def _count(book: RankBook, tier: Tier, blocks: int) -> None:
    """Never below none: what was stored before the first message may be removed after it."""
    if tier is Tier.DEVICE:
        book.device_blocks = max(0, book.device_blocks + blocks)
    else:
        book.beyond_blocks = max(0, book.beyond_blocks + blocks)
