"""Recorded traffic, read and reshaped."""

import json
from itertools import islice
from pathlib import Path

import pytest

from headrace.rehearsal.routing_trace import TracedRequest, at_rate, read_azure, read_mooncake, tiled


def test_a_mooncake_trace_is_read(tmp_path: Path) -> None:
    """Lengths and block names come as they are; only whole blocks count; ticks of its clock are spread out."""
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 0, "input_length": 512, "output_length": 7, "hash_ids": [0]},
        {"timestamp": 3000, "input_length": 100, "output_length": 0, "hash_ids": [9]},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    trace = read_mooncake(path, seed=1)
    by_length = {request.input_tokens: request for request in trace}
    assert by_length[1100].blocks == (0, 1)
    assert by_length[512].blocks == (0,)
    assert (by_length[100].blocks, by_length[100].output_tokens) == ((), 1)
    assert all(0 <= request.at_s < 3 for request in trace[:2])
    assert [request.at_s for request in trace] == sorted(request.at_s for request in trace)
    assert read_mooncake(path, seed=1) == trace != read_mooncake(path, seed=2)


def test_an_azure_trace_is_read(tmp_path: Path) -> None:
    """Times count from the first request, and no two prompts share a block."""
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,1200,10\n"
        "2023-11-16 18:17:04.4799600,1100,8\n"
    )
    first, second = read_azure(path)
    assert (first.at_s, second.at_s) == (0.0, pytest.approx(0.5))
    assert (len(first.blocks), len(second.blocks)) == (2, 2)
    assert not set(first.blocks) & set(second.blocks)


def test_a_trace_is_stretched_to_a_rate() -> None:
    """The mean rate becomes the wanted one; the order and shape stay."""
    trace = [TracedRequest(at_s=at_s, input_tokens=1, output_tokens=1, blocks=()) for at_s in (0.0, 1.0, 4.0)]
    assert [request.at_s for request in at_rate(trace, 0.5)] == [0.0, 1.0, 4.0]
    assert [request.at_s for request in at_rate(trace, 2.0)] == [0.0, 0.25, 1.0]


def test_a_tiled_trace_shares_nothing_between_copies() -> None:
    """However often a trace is repeated, its requests come in order and find cached only what their own copy sent."""
    trace = [TracedRequest(at_s=at_s, input_tokens=600, output_tokens=1, blocks=(7,)) for at_s in (0.0, 1.0)]
    found = list(tiled(trace, 7, copies_at_once=2))
    assert len(found) == 7
    assert [request.at_s for request in found] == sorted(request.at_s for request in found)
    assert len({request.blocks for request in found}) == 4
    assert len(list(islice(tiled(trace, 100, copies_at_once=1), 3))) == 3
