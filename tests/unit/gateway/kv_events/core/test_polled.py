"""What TensorRT-LLM answers when it is asked for its events."""

from typing import Any

import msgspec
import pytest

from headrace.gateway.kv_events.core.changes import MalformedError, Removed, Sized, Stored, Tier
from headrace.gateway.kv_events.core.polled import PolledReader


def event(number: int, **told: Any) -> dict[str, Any]:
    return {"event_id": number, "data": told, "window_size": 256}


def block(name: int | str, level: int = 0) -> dict[str, Any]:
    tokens = [{"type": "unique_token", "token_id": 5, "token_extra_id": 0}] * 32
    return {"type": "stored_block", "block_hash": name, "tokens": tokens, "cache_level": level, "priority": 35,
            "mm_keys": [], "cache_salt": None}  # fmt: skip


def read(*events: dict[str, Any], reader: PolledReader | None = None) -> list[Any]:
    found = (reader or PolledReader()).read(msgspec.json.encode(events))
    return [change for each in found for change in each.changes]


def test_its_four_kinds_are_read():
    """Created, stored and removed say how large the cache is and what is in it."""
    assert [
        Sized(1000), Stored(blocks=1, block_tokens=32), Stored(blocks=1, block_tokens=32), Removed(blocks=1)
    ] == read(
        event(0, type="created", num_blocks_per_cache_level=[1000, 50]),
        event(1, type="stored", parent_hash=None, blocks=[block(7), block("a")]),
        event(2, type="removed", block_hashes=[7]),
    )  # fmt: skip


def test_a_block_is_followed_from_level_to_level():
    """A removal does not say where the block lay: it is taken from where it was moved to."""
    diff = {"type": "event_diff", "old_value": 0, "new_value": 1}
    reader = PolledReader()
    read(event(1, type="stored", parent_hash=None, blocks=[block(7), block(8)]), reader=reader)
    assert [Removed(blocks=1), Stored(blocks=1, block_tokens=None, tier=Tier.BEYOND)] == read(
        event(2, type="updated", block_hash=7, cache_level=diff, priority=None), reader=reader
    )
    assert [Removed(blocks=1, tier=Tier.BEYOND), Removed(blocks=1)] == read(
        event(3, type="removed", block_hashes=[7, 8]), reader=reader
    )


def test_a_change_of_priority_moves_nothing():
    """Only a change of level counts."""
    assert (
        read(event(1, type="updated", block_hash=7, cache_level=None, priority={"old_value": 1, "new_value": 2})) == []
    )


def test_numbers_and_ranks_are_kept():
    """They show what is missing, rank by rank; a kind that is not known is said to be so."""
    body = msgspec.json.encode([event(4, type="pinned") | {"attention_dp_rank": 2}])
    (found,) = PolledReader().read(body)
    assert (found.number, found.rank, found.changes, found.is_known) == (4, 2, (), False)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'[{"event_id": 1}]', b'{"detail":"Not Found"}'])
def test_what_is_no_answer_is_refused(body: bytes):
    """A page of something else is not taken for an empty cache."""
    with pytest.raises(MalformedError):
        PolledReader().read(body)


@pytest.mark.parametrize(
    "answer",
    [
        msgspec.json.encode([event(0, type="created", num_blocks_per_cache_level=[2**60])]),
        msgspec.json.encode([event(0, type="created", num_blocks_per_cache_level=[-1])]),
        b'[{"event_id":0,"data":{"type":"stored","blocks":' + b"[" * 3000 + b"]" * 3000 + b"}}]",
    ],
)
def test_what_no_cache_can_hold_is_refused_whole(answer: bytes):
    """Sizes that no engine has, and brackets without end, are no answer."""
    with pytest.raises(MalformedError):
        PolledReader().read(answer)
