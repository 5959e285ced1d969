"""A trace's requests as text."""

import json

from benchmarks.routing.prompts import Prompts, block_text

from headrace.engines.simulated.text import encode
from headrace.rehearsal.routing_trace import TracedRequest


def content(prompts: Prompts, number: int, *blocks: int, tokens: int) -> str:
    request = TracedRequest(at_s=0.0, input_tokens=tokens, output_tokens=7, blocks=blocks)
    return json.loads(prompts.body(number, request))["messages"][0]["content"]


def test_equal_beginnings_of_blocks_are_equal_beginnings_of_text() -> None:
    """What the trace says is shared is shared byte for byte, and no more than that."""
    prompts = Prompts("m")
    first = content(prompts, 1, 0, 5, tokens=1100)
    second = content(prompts, 2, 0, 6, tokens=1100)
    assert first[:2048] == second[:2048]
    assert first[2048:2060] != second[2048:2060]
    assert content(prompts, 3, 0, 5, tokens=1100)[:4096] == first[:4096]
    assert content(prompts, 3, 0, 5, tokens=1100)[4096:] != first[4096:]


def test_prompts_have_the_traced_number_of_tokens() -> None:
    """The simulated engine counts as many tokens as the trace, but for its template's few."""
    assert abs(len(encode(content(Prompts("m"), 1, 0, 5, tokens=1337))) - 1337) <= 1


def test_a_block_is_always_the_same() -> None:
    """Runs on different days send the same bytes."""
    assert block_text(17, 100) == block_text(17, 100)
    assert len(block_text(17, 2048)) == 2048
