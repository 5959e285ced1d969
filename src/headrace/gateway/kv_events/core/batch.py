"""Reads a batch of events as vLLM and SGLang send it: MessagePack `[time, events, rank]`.

1. Events are maps with their kind under `type` (vLLM 0.32, SGLang 0.5.23), or arrays that begin with it (both before
   that). The batch is an array, or a map in some builds of vLLM. All are read; which is seen at the first byte.
2. Only counts are kept: token ids are passed over where they lie.
3. An event of an unknown kind is counted; a message that is no batch is refused whole.
Sources: vllm/distributed/kv_events.py, sglang/srt/disaggregation/kv_events.py.
"""

from dataclasses import dataclass

import msgspec

from headrace.gateway.kv_events.core.changes import Change, Cleared, MalformedError, Removed, Stored, Tier

LARGEST_BATCH_BYTES = 16 * 1024 * 1024
"""A step of a large engine stores some thousand blocks, each with its token ids: a megabyte. Chosen well above it."""
MOST_EVENTS = 100_000
"""In one batch. Chosen: an engine that evicts all it has sends a removal for each block or node."""
DEVICE_NAMES = frozenset({None, "GPU", "gpu"})
"""`medium` of blocks on the device; older engines leave it out."""


class _ArrayBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[msgspec.Raw]


class _MapBatch(msgspec.Struct):
    events: list[msgspec.Raw]


class _StoredMap(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[msgspec.Raw]
    block_size: int
    medium: str | None = None


class _RemovedMap(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[msgspec.Raw]
    medium: str | None = None


class _ClearedMap(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _StoredArray(msgspec.Struct, array_like=True, tag="BlockStored"):
    block_hashes: list[msgspec.Raw]
    parent_block_hash: msgspec.Raw
    token_ids: msgspec.Raw
    block_size: int
    lora_id: msgspec.Raw | None = None
    medium: str | None = None


class _RemovedArray(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    block_hashes: list[msgspec.Raw]
    medium: str | None = None


class _ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


_array_batches = msgspec.msgpack.Decoder(_ArrayBatch)
_map_batches = msgspec.msgpack.Decoder(_MapBatch)
_map_events = msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap)
_array_events = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)
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
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedError(f"it is no batch of events: {type(error).__name__}") from error
    if len(events) > MOST_EVENTS:
        raise MalformedError(f"it has {len(events)} events, more than {MOST_EVENTS}")
    return SplitBatch(events)


def read_events(events: list[msgspec.Raw]) -> tuple[list[Change], int]:
    """Return what changed, in order, and how many events are of kinds that are not known. Raises: MalformedError."""
    changes: list[Change] = []
    unknown = 0
    try:
        for event in events:
            change = _read_event(event)
            if change is None:
                unknown += 1
            else:
                changes.append(change)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedError(f"it has an event that is none: {type(error).__name__}") from error
    return changes, unknown


def _is_map(first: int) -> bool:
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _read_event(event: msgspec.Raw) -> Change | None:
    """None: of a kind that is not known here."""
    is_map = _is_map(memoryview(event)[0])
    try:
        found = _map_events.decode(event) if is_map else _array_events.decode(event)
    except msgspec.ValidationError:
        if _kind_of(event, is_map=is_map) in ("BlockStored", "BlockRemoved", "AllBlocksCleared"):
            raise
        return None
    if isinstance(found, (_StoredMap, _StoredArray)):
        if found.block_size < 1:
            raise ValueError("a block without tokens")
        return Stored(blocks=len(found.block_hashes), block_tokens=found.block_size, tier=_tier_of(found.medium))
    if isinstance(found, (_RemovedMap, _RemovedArray)):
        return Removed(blocks=len(found.block_hashes), tier=_tier_of(found.medium))
    return Cleared()


def _kind_of(event: msgspec.Raw, *, is_map: bool) -> str:
    if is_map:
        return _tagged_maps.decode(event).type
    members = _tags.decode(event)
    return msgspec.msgpack.decode(members[0], type=str) if members else ""


def _tier_of(medium: str | None) -> Tier:
    return Tier.DEVICE if medium in DEVICE_NAMES else Tier.BEYOND
