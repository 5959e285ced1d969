"""What is to be known of an endpoint for handing prompts over: its role, its engine's words, its slots.

Endpoints of a model none of whose pools has a role have no seat, and nobody asks further.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from headrace.declaration.gateway_plan import GatewayPlan, PoolPlan
from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import HandoverWords, SlotWords, find_handover_words
from headrace.engines.kv_shape import KvShape, declared_shape
from headrace.gateway.handover.core.slot_book import SlotBook

MEETING_OFFSET = 20000
"""How far above an engine's port its transfer port is, where headrace starts it (`ReplicaSpec.transfer_port`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seat:
    """One endpoint's place in hand-overs."""

    can_prefill: bool = False
    can_decode: bool = False
    serves_whole: bool = True
    """It also answers requests alone."""
    words: HandoverWords | None = None
    shape: KvShape | None = None
    slots: SlotBook | None = None
    """This worker's part of its slots, where engines have slots: every request is pinned to one."""
    folder: Path | None = None
    meeting_host: str = ""
    meeting_port: int = 0

    @property
    def is_reserve(self) -> bool:
        """It computes prompts for others; requests go to it whole only where nothing else is left."""
        return self.can_prefill and not self.can_decode


ORDINARY = Seat()
"""Of an endpoint beside the halves: a request for it may be split all the same."""


class Seats:
    """Gives endpoints their seats. `serial`: of this worker, which gives out its own part of each engine's slots."""

    def __init__(self, serial: int, slot_dir: Path) -> None:
        self._serial = serial
        self._slot_dir = slot_dir
        self._models: frozenset[str] = frozenset()
        self._workers = 1
        self._books: WeakValueDictionary[str, SlotBook] = WeakValueDictionary()
        """By URL of the engine, as long as a seat or a request has them: what is in use outlives plans."""

    def adopt(self, plan: GatewayPlan) -> None:
        """Follow a new plan."""
        self._workers = plan.workers
        self._models = frozenset(
            pool.model for pool in plan.pools if pool.handover is not None and pool.handover.role != "decode"
        ) | frozenset(
            pool.model for pool in plan.pools if pool.handover is not None and _words(pool) and not _is_whole(pool)
        )

    def folders(self, pools: Iterable[PoolPlan]) -> frozenset[Path]:
        """The folders in which files of hand-overs may be left."""
        return frozenset(
            self._folder(pool) for pool in pools if pool.handover is not None and isinstance(_words(pool), SlotWords)
        )

    def seat_for(self, pool: PoolPlan, url: str) -> Seat | None:
        """Return the seat of an endpoint at `url`; who uses which of its slots is kept from plan to plan."""
        if pool.model not in self._models:
            return None
        plan, words = pool.handover, _words(pool)
        if plan is None or words is None:
            return ORDINARY
        address = urlsplit(url)
        has_slots = isinstance(words, SlotWords)
        return Seat(
            can_prefill=plan.role != "decode",
            can_decode=plan.role != "prefill",
            serves_whole=words.serves_whole,
            words=words,
            shape=declared_shape(plan, EngineKind(pool.engine), pool.model),
            slots=self._slots(plan.slots or 1, url) if has_slots else None,
            folder=self._folder(pool) if has_slots else None,
            meeting_host=address.hostname or "",
            meeting_port=plan.bootstrap_port or (address.port or 80) + MEETING_OFFSET,
        )

    def _folder(self, pool: PoolPlan) -> Path:
        folder = None if pool.handover is None else pool.handover.folder
        return self._slot_dir if folder is None else Path(folder)

    def _slots(self, count: int, url: str) -> SlotBook:
        own = range(self._serial % self._workers, count, self._workers)
        book = self._books.get(url)
        if book is None:
            book = self._books[url] = SlotBook(own)
        else:
            book.follow(own)
        return book


def _words(pool: PoolPlan) -> HandoverWords | None:
    return find_handover_words(EngineKind(pool.engine))


def _is_whole(pool: PoolPlan) -> bool:
    words = _words(pool)
    return words is None or words.serves_whole
