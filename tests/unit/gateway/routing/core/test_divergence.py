"""Where two prompts part, and why: twelve planted causes, and healthy traffic."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from headrace.gateway.routing.core.divergence import ADVICE, Cause, Divergence, find_divergence
from headrace.gateway.routing.core.shape import MARK_BYTES, shape_of

RULES = "You help the people of the mill. " * 20
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("open_gate", "close_gate", "read_level")
]  # fmt: skip


def turn(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def request() -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [
            turn(f"{RULES}Today is 2026-11-30 08:15. Case 7f3a9c21b4e8d605, attempt 1. Answer briefly.", "system"),
            turn("How high is the water? " * 10),
            turn("It stands at the second mark. " * 10, "assistant"),
            turn("Open the gate then. " * 10),
        ],
        "tools": copy.deepcopy(TOOLS),
        "chat_template_kwargs": {"enable_thinking": False},
    }


def system(body: dict[str, Any], old: str, new: str) -> None:
    body["messages"][0]["content"] = body["messages"][0]["content"].replace(old, new)


def reorder_keys(body: dict[str, Any]) -> None:
    body["tools"][1]["function"] = dict(reversed(body["tools"][1]["function"].items()))


PLANTED: list[tuple[str, Callable[[dict[str, Any]], object], Cause, str]] = [
    ("time", lambda b: system(b, "08:15", "08:16"), Cause.TIME, "messages[0].content"),
    ("date", lambda b: system(b, "2026-11-30", "2026-12-01"), Cause.TIME, "messages[0].content"),
    ("id", lambda b: system(b, "7f3a9c21b4e8d605", "00c4d1e2f3a4b5c6"), Cause.ID, "messages[0].content"),
    ("number", lambda b: system(b, "attempt 1", "attempt 2"), Cause.NUMBER, "messages[0].content"),
    ("white space", lambda b: system(b, "mill. You", "mill.  You"), Cause.WHITE_SPACE, "messages[0].content"),
    ("early text", lambda b: system(b, "You help", "Dear Anna, you help"), Cause.EARLY_TEXT, "messages[0].content"),
    ("tool order", lambda b: b["tools"].reverse(), Cause.TOOL_ORDER, "tools[0]"),
    ("key order", reorder_keys, Cause.KEY_ORDER, "tools[1]"),
    ("tools changed", lambda b: b["tools"].pop(1), Cause.TOOLS_CHANGED, "tools[1]"),
    ("template", lambda b: b.update(chat_template_kwargs={"a": True}), Cause.TEMPLATE, "chat_template_kwargs"),
    ("model", lambda b: b.update(model="n"), Cause.OTHER_MODEL, "model"),
    ("shortened", lambda b: b["messages"].pop(1), Cause.HISTORY_SHORTENED, "messages[1].content"),
    ("rewritten", lambda b: b["messages"][1].update(content="So."), Cause.HISTORY_REWRITTEN, "messages[1].content"),
    ("role", lambda b: b["messages"][2].update(role="user"), Cause.ROLE, "messages[2].content"),
]  # fmt: skip


def compare(earlier: dict[str, Any], later: dict[str, Any]) -> Divergence | None:
    return find_divergence(shape_of(earlier), shape_of(later))


@pytest.mark.parametrize(("change", "cause", "place"), [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED])
def test_a_planted_cause_is_named_with_its_place(
    change: Callable[[dict[str, Any]], object], cause: Cause, place: str
) -> None:
    """Each way in which applications spoil their prefix is recognised, where it is, and comes with advice."""
    earlier, later = request(), request()
    later["messages"] += [turn("It is open.", "assistant"), turn("Thank you.")]
    change(later)
    found = compare(earlier, later)
    assert found is not None
    assert (found.cause, found.place) == (cause, place)
    assert found.advice == ADVICE[cause]
    assert found.lost_bytes > 0


def test_the_offset_is_that_of_the_difference() -> None:
    """A changed word is placed to within 64 bytes, and what came before it counts as shared."""
    earlier, later = request(), request()
    system(later, "08:15", "08:16")
    found = compare(earlier, later)
    assert found is not None
    at = earlier["messages"][0]["content"].index("08:15")
    assert found.byte_offset <= at < found.byte_offset + MARK_BYTES
    assert found.message == 0
    assert found.shared_tokens > 100


@pytest.mark.parametrize("turns", [0, 1, 2, 6])
def test_a_healthy_conversation_is_not_mentioned(turns: int) -> None:
    """Going on with a conversation, or repeating a request, is nothing to explain."""
    earlier, later = request(), request()
    for number in range(turns):
        later["messages"] += [turn(f"answer {number}", "assistant"), turn(f"question {number}")]
    assert compare(earlier, later) is None


def test_other_fields_change_nothing() -> None:
    """Sampling, limits and the order of the body's own fields are no part of the prompt."""
    earlier, later = request(), request()
    later = dict(reversed(later.items())) | {"temperature": 0.7, "max_tokens": 5, "seed": 3}
    assert compare(earlier, later) is None


def test_a_completion_that_goes_on_is_healthy() -> None:
    """A prompt that continues a text shares it."""
    text = "Once there was a mill. " * 30
    assert compare({"model": "m", "prompt": text}, {"model": "m", "prompt": text + "It had a wheel."}) is None


def test_another_prompt_is_no_spoiled_one() -> None:
    """Prompts with nothing in common are called that, whatever they hold."""
    found = compare({"model": "m", "messages": [turn("a" * 500)]}, {"model": "m", "messages": [turn("b" * 500)]})
    assert found is not None
    assert found.cause is Cause.OTHER_PROMPT


def test_shapes_hold_no_text() -> None:
    """What is kept of a prompt is numbers and places, never words."""
    shown = repr(shape_of(request()))
    assert "mill" not in shown
    assert "gate" not in shown
