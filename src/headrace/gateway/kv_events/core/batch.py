"""Reads a batch of events as vLLM and SGLang send it: MessagePack `[time, events, rank]`.

1. Events are maps with their kind under `type` (vLLM 0.32, SGLang 0.5.23), or arrays that begin with it (both before
   that). The batch is an array, or a map in some builds of vLLM. All are read; which is seen at the first byte.
2. Only counts are kept: token ids are passed over where they lie.
3. An event of an unknown kind is counted; a message that is no batch is refused whole.
Sources: vllm/distributed/kv_events.py, sglang/srt/disaggregation/kv_events.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.kv_events.core.changes import (
    MOST_BLOCK_TOKENS,
    Change,
    Cleared,
    MalformedError,
    Removed,
    Stored,
    Tier,
)

LARGEST_BATCH_BYTES = 16 * 1024 * 1024
"""A step of a large engine stores some thousand blocks, each with its token ids: a megabyte. Chosen well above it."""
MOST_EVENTS = 100_000
"""In one batch. Chosen: an engine that evicts all it has sends a removal for each block or node."""
KINDS = frozenset({"BlockStored", "BlockRemoved", "AllBlocksCleared"})
DEVICE_NAMES = frozenset({None, "GPU", "gpu"})
"""`medium` of blocks on the device; older engines leave it out."""


class _ArrayBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[msgspec.Raw]


class _MapBatch(msgspec.Struct):
    events: list[msgspec.Raw]


class _StoredMap(msgspec.Struct, tag="BlockStored"):
    block_hashes: msgspec.Raw
    block_size: int
    medium: str | None = None


class _RemovedMap(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: msgspec.Raw
    medium: str | None = None


class _ClearedMap(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _StoredArray(msgspec.Struct, array_like=True, tag="BlockStored"):
    block_hashes: msgspec.Raw
    parent_block_hash: msgspec.Raw
    token_ids: msgspec.Raw
    block_size: int
    lora_id: msgspec.Raw | None = None
    medium: str | None = None


class _RemovedArray(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    block_hashes: msgspec.Raw
    medium: str | None = None


class _ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


_array_batches = msgspec.msgpack.Decoder(_ArrayBatch)
_map_batches = msgspec.msgpack.Decoder(_MapBatch)
_Event = _StoredMap | _RemovedMap | _ClearedMap | _StoredArray | _RemovedArray | _ClearedArray
_STORED, _REMOVED = (_StoredMap, _StoredArray), (_RemovedMap, _RemovedArray)
_map_slices = msgspec.msgpack.Decoder(list[_StoredMap | _RemovedMap | _ClearedMap])
_array_slices = msgspec.msgpack.Decoder(list[_StoredArray | _RemovedArray | _ClearedArray])
_tags = msgspec.msgpack.Decoder(list[msgspec.Raw])


class _TaggedMap(msgspec.Struct):
    type: str


_tagged_maps = msgspec.msgpack.Decoder(_TaggedMap)


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """A message cut into its events, which are read a slice at a time: SGLang may send one for each token."""

    events: list[msgspec.Raw]


def split_batch(payload: bytes) -> SplitBatch:
    """Cut a message into its events. Raises: MalformedError."""
    if not payload:
        raise MalformedError("it is empty")
    if len(payload) > LARGEST_BATCH_BYTES:
        raise MalformedError(f"it has {len(payload)} bytes, more than {LARGEST_BATCH_BYTES}")
    try:
        decoder = _map_batches if _is_map(payload[0]) else _array_batches
        events = decoder.decode(payload).events
    except (*UNDECODABLE, ValueError) as error:
        raise MalformedError(f"it is no batch of events: {type(error).__name__}") from error
    if len(events) > MOST_EVENTS:
        raise MalformedError(f"it has {len(events)} events, more than {MOST_EVENTS}")
    return SplitBatch(events)


def read_events(events: list[msgspec.Raw]) -> tuple[list[Change], int]:
    """Return what changed, in order and added up where it can be, and how many events are of kinds that are not known.

    At most 65,535 events. Raises: MalformedError.
    """
    found, unknown = _Sum(), 0
    try:
        try:
            for event in _decode(events):
                found.add(event)
        except msgspec.ValidationError:  # one of them is of another kind, or of another form: each by itself
            found = _Sum()
            for raw in events:
                one = _read_event(raw)
                if one is None:
                    unknown += 1
                else:
                    found.add(one)
        found.flush()
    except (*UNDECODABLE, ValueError) as error:
        raise MalformedError(f"it has an event that is none: {type(error).__name__}") from error
    return found.changes, unknown


def _decode(events: list[msgspec.Raw]) -> Sequence[_Event]:
    """All of one form, read in one call: one by one costs five times as much."""
    if not events:
        return ()
    decoder = _map_slices if _is_map(memoryview(events[0])[0]) else _array_slices
    return decoder.decode(b"\xdc" + len(events).to_bytes(2, "big") + b"".join(events))


def _read_event(event: msgspec.Raw) -> _Event | None:
    """None: of a kind that is not known here."""
    try:
        return _decode([event])[0]
    except msgspec.ValidationError:
        if _kind_of(event, is_map=_is_map(memoryview(event)[0])) in KINDS:
            raise
        return None


class _Sum:
    """Adds up events, one after another; those of one kind that follow each other become one change. (Plain loops: an
    engine with pages of one token sends an event for each.)"""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._kind: tuple[bool, str | None, int] | None = None
        """Whether stored, medium, size of a block: of the events that are being added up."""
        self._blocks = 0

    def add(self, event: _Event) -> None:
        if isinstance(event, _STORED):
            kind = (True, event.medium, event.block_size)
        elif isinstance(event, _REMOVED):
            kind = (False, event.medium, 0)
        else:
            self.flush()
            self.changes.append(Cleared())
            return
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._blocks += _length(event.block_hashes)

    def flush(self) -> None:
        """Write down what was added up."""
        if self._kind is None:
            return
        is_stored, medium, block_tokens = self._kind
        tier = Tier.DEVICE if medium in DEVICE_NAMES else Tier.BEYOND
        if is_stored:
            if not 1 <= block_tokens <= MOST_BLOCK_TOKENS:
                raise ValueError("a block of no size that there is")
            self.changes.append(Stored(blocks=self._blocks, block_tokens=block_tokens, tier=tier))
        else:
            self.changes.append(Removed(blocks=self._blocks, tier=tier))
        self._kind, self._blocks = None, 0


def _length(raw: msgspec.Raw) -> int:
    """Members of an array, as its first bytes say; the array has been passed over by the decoder, so it is whole."""
    view = memoryview(raw)
    first = view[0]
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    if first in (0xDC, 0xDD):
        return int.from_bytes(view[1 : 3 if first == 0xDC else 5], "big")
    raise ValueError("block_hashes is no list")


def _is_map(first: int) -> bool:
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _kind_of(event: msgspec.Raw, *, is_map: bool) -> str:
    if is_map:
        return _tagged_maps.decode(event).type
    members = _tags.decode(event)
    return msgspec.msgpack.decode(members[0], type=str) if members else ""
