"""Batches of vLLM's and SGLang's events, in the forms that their versions have written."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.kv_events.core.batch import MOST_EVENTS, read_events, split_batch
from headrace.gateway.kv_events.core.changes import Change, Cleared, MalformedError, Removed, Stored, Tier

HASHES = [b"\x01" * 32, b"\x02" * 32, 2**64 - 1]
STORED_MAP = {
    "type": "BlockStored", "block_hashes": HASHES, "parent_block_hash": None, "token_ids": list(range(48)),
    "block_size": 16, "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": [["salt"], None, None],
}  # fmt: skip
STORED_ARRAY = ["BlockStored", HASHES, -5, list(range(48)), 16, None, "GPU", None, [None, None, None]]
OLDEST_ARRAY = ["BlockStored", [7, 8, 9], None, list(range(48)), 16, None]
FORMS: dict[str, list[Any]] = {
    "vllm-0.32": [
        STORED_MAP, {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}, {"type": "AllBlocksCleared"},
    ],
    "sglang-0.5.23": [
        {"type": "BlockStored", "block_hashes": [-1, 2, 3], "parent_block_hash": None, "token_ids": [1] * 48,
         "block_size": 16, "lora_id": None},
        {"type": "BlockRemoved", "block_hashes": [-1]},
        {"type": "AllBlocksCleared"},
    ],
    "arrays": [STORED_ARRAY, ["BlockRemoved", [1], "GPU"], ["AllBlocksCleared"]],
    "first-arrays": [OLDEST_ARRAY, ["BlockRemoved", [1]], ["AllBlocksCleared"]],
}  # fmt: skip
SAID: list[Change] = [Stored(blocks=3, block_tokens=16), Removed(blocks=1), Cleared()]


def read(payload: bytes) -> tuple[list[Change], int]:
    return read_events(split_batch(payload).events)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tail", [[], [None], [3]])
def test_every_form_that_engines_have_written_is_read(form: str, tail: list[int | None]):
    """Maps and arrays, with a rank and without, say the same."""
    assert read(msgspec.msgpack.encode([12.5, FORMS[form], *tail])) == (SAID, 0)


def test_a_batch_may_be_a_map():
    """Some builds of vLLM write it so."""
    payload = msgspec.msgpack.encode({"ts": 1.0, "events": FORMS["vllm-0.32"], "data_parallel_rank": 1})
    assert read(payload) == (SAID, 0)


def test_blocks_beyond_the_device_are_told_apart():
    """What is offloaded to host memory takes no room on the device."""
    events = [
        {"type": "BlockStored", "block_hashes": [1], "token_ids": [], "block_size": 16, "medium": "CPU"},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "STORAGE"},
    ]
    found, _ = read(msgspec.msgpack.encode([0.0, events]))
    assert [Stored(blocks=1, block_tokens=16, tier=Tier.BEYOND), Removed(blocks=1, tier=Tier.BEYOND)] == found


def test_a_kind_that_is_not_known_is_counted():
    """A newer engine's events do not hide those that are known."""
    events = [{"type": "BlockPinned", "block_hashes": [1]}, ["Blah", 1], {"type": "AllBlocksCleared"}]
    assert ([Cleared()], 2) == read(msgspec.msgpack.encode([0.0, events]))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"hello",
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, 7]),
        msgspec.msgpack.encode([1.0, [7]]),
        msgspec.msgpack.encode([1.0, [{"block_hashes": []}]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockStored", "block_hashes": 3, "block_size": 16}]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockStored", "block_hashes": [3], "block_size": 0}]]),
        msgspec.msgpack.encode([1.0, [None] * (MOST_EVENTS + 1)]),
        msgspec.msgpack.encode([1.0, [STORED_MAP]])[:-4],
    ],
)
def test_what_is_no_batch_is_refused(payload: bytes):
    """Something else that publishes on the port is not taken for a cache."""
    with pytest.raises(MalformedError):
        read(payload)


@given(st.binary(max_size=300))
def test_no_message_does_more_than_be_refused(payload: bytes):
    """Whatever bytes come, they are read or refused."""
    with suppress(MalformedError):
        read(payload)


@pytest.mark.parametrize("block_size", [-1, 0, 2**20 + 1, 2**64 - 1])
def test_a_block_of_no_size_that_there_is_makes_the_message_unreadable(block_size: int):
    """What is counted can always be told in tokens."""
    events = split_batch(msgspec.msgpack.encode([1.0, [{**STORED_MAP, "block_size": block_size}]])).events
    with pytest.raises(MalformedError):
        read_events(events)
