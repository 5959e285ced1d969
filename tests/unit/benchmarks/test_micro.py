"""The request path stays short: calls of our own code, which are the same on every machine, however busy."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from benchmarks.micro.command import measure


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The benchmark sets the cyclic collector up as a gateway does; the tests after it get their own back."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize(
    ("kind", "most_python_calls"),
    [("small", 105), ("no-limits", 97), ("many-limits", 118), ("queue-bounds", 114), ("8-backends", 120)],
)
def test_a_request_takes_few_calls(tmp_path: Path, kind: str, most_python_calls: int) -> None:
    """Whoever makes every request longer by a dozen calls or more decides to, and raises the bound."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cost, _ = runner.run(measure(kind, tmp_path, 1, {"limits": "two"}))
    assert cost.python_calls <= most_python_calls
    assert cost.garbage_objects < 0.1  # all of a request is freed when it ends


def test_a_chunk_takes_few_calls(tmp_path: Path) -> None:
    """What a request takes is spread over its 64 chunks here: two calls of these eight and a half."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cost, _ = runner.run(measure("stream-64", tmp_path, 1, {"limits": "two"}))
    assert cost.python_calls <= 10.5
