"""Reads what TensorRT-LLM answers at `POST /kv_cache_events`: a JSON list of events, each with a number of its own.

1. `created` comes once: how many blocks each level has; level 0 is the device.
2. `stored` has blocks with their tokens and level; `removed` names blocks, not where they lay; `updated` may move one
   from a level to another. Blocks beyond the device are remembered by name, so that a removal finds its place.
3. Reading takes the events out of the engine: whoever else reads gets others.
Source: tensorrt_llm/_utils.py (KVCacheEventSerializer), read; never run.
"""

from collections import OrderedDict
from typing import Annotated

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.kv_events.core.changes import MOST_BLOCKS, Change, MalformedError, Removed, Sized, Stored, Tier

MOST_BEYOND = 200_000
"""Names of blocks beyond the device that are remembered; about 100 bytes each. Chosen."""
Name = int | str
"""Of a block: a number, or text in newer versions."""


class _Moved(msgspec.Struct):
    old_value: int
    new_value: int


Blocks = Annotated[int, msgspec.Meta(ge=0, le=MOST_BLOCKS)]


class _Block(msgspec.Struct):
    block_hash: Name
    tokens: list[msgspec.Raw]
    cache_level: int = 0


class _Told(msgspec.Struct):
    """Members of all kinds of events; which are there depends on the kind."""

    type: str
    num_blocks_per_cache_level: list[Blocks] = []
    blocks: list[_Block] = []
    block_hashes: list[Name] = []
    block_hash: Name | None = None
    cache_level: _Moved | None = None


class _Event(msgspec.Struct):
    event_id: int
    data: _Told
    attention_dp_rank: int | None = None


_answers = msgspec.json.Decoder(list[_Event])


class PolledEvent(msgspec.Struct, frozen=True):
    """One event: its number in its rank's order, and what changed."""

    number: int
    rank: int
    changes: tuple[Change, ...]
    is_known: bool = True


class PolledReader:
    """Remembers where blocks lie. One per endpoint."""

    def __init__(self) -> None:
        self._beyond: OrderedDict[Name, None] = OrderedDict()

    def read(self, body: bytes) -> list[PolledEvent]:
        """Return the events of one answer, in order. Raises: MalformedError."""
        try:
            told = _answers.decode(body)
        except UNDECODABLE as error:
            raise MalformedError(f"it is no list of events: {type(error).__name__}") from error
        found: list[PolledEvent] = []
        for event in told:
            changes = self._changes(event.data)
            known = () if changes is None else tuple(changes)
            found.append(PolledEvent(event.event_id, event.attention_dp_rank or 0, known, changes is not None))
        return found

    def _changes(self, told: _Told) -> list[Change] | None:
        match told.type:
            case "created":
                self._beyond.clear()
                levels = told.num_blocks_per_cache_level
                return [Sized(levels[0])] if levels else []
            case "stored":
                return [change for block in told.blocks for change in self._store(block)]
            case "removed":
                return self._remove(told.block_hashes)
            case "updated":
                return self._move(told)
            case _:
                return None

    def _store(self, block: _Block) -> list[Change]:
        if not block.tokens:
            return []
        if block.cache_level:
            self._remember(block.block_hash)
        tier = Tier.BEYOND if block.cache_level else Tier.DEVICE
        return [Stored(blocks=1, block_tokens=len(block.tokens), tier=tier)]

    def _remove(self, names: list[Name]) -> list[Change]:
        beyond = sum(self._beyond.pop(name, False) is None for name in names)
        changes: list[Change] = []
        if beyond:
            changes.append(Removed(blocks=beyond, tier=Tier.BEYOND))
        if len(names) > beyond:
            changes.append(Removed(blocks=len(names) - beyond))
        return changes

    def _move(self, told: _Told) -> list[Change]:
        moved, name = told.cache_level, told.block_hash
        if moved is None or name is None or (not moved.old_value) == (not moved.new_value):
            return []
        if moved.new_value:
            self._remember(name)
            return [Removed(blocks=1), Stored(blocks=1, block_tokens=None, tier=Tier.BEYOND)]
        self._beyond.pop(name, None)
        return [Removed(blocks=1, tier=Tier.BEYOND), Stored(blocks=1, block_tokens=None)]

    def _remember(self, name: Name) -> None:
        self._beyond[name] = None
        if len(self._beyond) > MOST_BEYOND:
            self._beyond.popitem(last=False)
