"""Recorded traffic for rehearsals of routing: when requests came, how long they were, which prompts began alike.

Two public formats: Mooncake's JSONL (prompt blocks named by `hash_ids`) and Azure's CSV (lengths only).
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec

TRACE_BLOCK_TOKENS = 512
"""Tokens of one block of `hash_ids`. Source: Mooncake's trace release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """One request of a trace."""

    at_s: float
    """After the trace's beginning."""
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    """Each stands for TRACE_BLOCK_TOKENS tokens and all before them; only whole ones."""


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read_mooncake(path: Path, *, requests: int | None = None, seed: int = 0) -> list[TracedRequest]:
    """Read a JSONL trace. Its clock ticks every few seconds: what came within a tick is spread over it by chance."""
    decode = msgspec.json.Decoder(_Line).decode
    lines = [decode(line) for line in path.read_bytes().splitlines()[:requests] if line]
    return _spread(
        [
            TracedRequest(
                at_s=line.timestamp / 1000,
                input_tokens=line.input_length,
                output_tokens=max(1, line.output_length),
                blocks=line.hash_ids[: line.input_length // TRACE_BLOCK_TOKENS],
            )
            for line in lines
        ],
        Random(seed),  # noqa: S311 (a workload, not a secret)
    )


def read_azure(path: Path, *, requests: int | None = None) -> list[TracedRequest]:
    """Read a CSV trace. Nothing in it is shared: every prompt has blocks of its own."""
    found: list[TracedRequest] = []
    block = 0
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if requests is not None and len(found) >= requests:
                break
            at = datetime.fromisoformat(row["TIMESTAMP"][:26] + "+00:00")
            tokens = int(row["ContextTokens"])
            whole = tokens // TRACE_BLOCK_TOKENS
            found.append(
                TracedRequest(
                    at_s=at.timestamp(),
                    input_tokens=max(1, tokens),
                    output_tokens=max(1, int(row["GeneratedTokens"])),
                    blocks=tuple(range(block, block + whole)),
                )
            )
            block += whole
    return from_its_start(found)


def from_its_start(trace: Sequence[TracedRequest]) -> list[TracedRequest]:
    """A trace, or a window of one, with its first request at 0."""
    start_s = trace[0].at_s if trace else 0.0
    return [replace(request, at_s=request.at_s - start_s) for request in trace]


def _spread(trace: Sequence[TracedRequest], chance: Random) -> list[TracedRequest]:
    moments = sorted({request.at_s for request in trace})
    following = dict(pairwise(moments))
    tick_s = min((after - at for at, after in following.items()), default=1.0)
    moved = [replace(request, at_s=request.at_s + chance.random() * tick_s) for request in trace]
    return sorted(moved, key=lambda request: request.at_s)


def at_rate(trace: Sequence[TracedRequest], requests_per_s: float) -> list[TracedRequest]:
    """Stretch or squeeze a trace's times to a mean rate, its shape kept."""
    span_s = trace[-1].at_s - trace[0].at_s
    scale = (len(trace) - 1) / requests_per_s / span_s if span_s else 1.0
    return [replace(request, at_s=request.at_s * scale) for request in trace]


def tiled(trace: Sequence[TracedRequest], requests: int, *, copies_at_once: int) -> Iterator[TracedRequest]:
    """Repeat a trace until there are so many requests: `copies_at_once` of it run side by side, then the next ones.

    Copies share nothing: each has blocks of its own.
    """
    span_s = trace[-1].at_s + 1.0
    highest = max((max(request.blocks, default=0) for request in trace), default=0) + 1
    made, round_number = 0, 0
    while made < requests:
        for request in trace:
            for copy in range(copies_at_once):
                if made >= requests:
                    return
                shift = (round_number * copies_at_once + copy) * highest
                yield replace(
                    request,
                    at_s=request.at_s + round_number * span_s + copy * 1e-4,
                    blocks=tuple(block + shift for block in request.blocks),
                )
                made += 1
        round_number += 1
