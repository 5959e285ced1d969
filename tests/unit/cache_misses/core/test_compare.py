"""Two prompts compared: place and cause. (What the gateway sees of them: tests/story/gateway/test_cache_misses.py.)"""

from typing import Any

import pytest
from tests.unit.cache_misses.core.prompts import LONG, chat

from headrace.cache_misses.core.compare import compare, shared_content
from headrace.domain.miss_status import MissCause

TOOL = {"function": {"name": "a", "description": "the books of the mill", "parameters": {"x": 1, "y": 2}}}
OTHER = {"function": {"name": "b", "description": "the weather"}}
BACKWARDS = {"function": {"parameters": {"y": 2, "x": 1}, "description": "the books of the mill", "name": "a"}}


@pytest.mark.parametrize(
    ("old", "new", "cause", "byte"),
    [
        (("Be kind. " + LONG, "q"), ("Be kind.  " + LONG, "q"), MissCause.WHITE_SPACE, 9),
        ((f"Day 2026-11-30. {LONG}", "q"), (f"Day 2026-12-01. {LONG}", "q"), MissCause.TIMESTAMP, 12 - 1),
        (("Call call_aaaa1111. " + LONG, "q"), ("Call call_bbbb2222. " + LONG, "r"), MissCause.IDENTIFIER, 10),
        ((f"Turn 7. {LONG}", "q"), (f"Turn 8. {LONG}", "q"), MissCause.NUMBER, 5),
        ((f"For Ann. {LONG}", "q"), (f"For Bob. {LONG}", "q"), MissCause.DYNAMIC_CONTENT, 4),
        (("s", "one thing", LONG), ("s", "other words", LONG), MissCause.MESSAGE_EDITED, 1),
        (("s", "q", "a", LONG), ("s", LONG), MissCause.FRONT_TRUNCATED, 0),
        (("s", LONG), ("s", "new", "old", LONG), MissCause.MESSAGE_INSERTED, 0),
        (("one", "q"), ("other", "r"), MissCause.DIFFERENT, 1),
    ],
)
def test_messages(old: Any, new: Any, cause: MissCause, byte: int) -> None:
    """What differs in messages is named, and its first byte is within the grain."""
    found = compare(chat(*old), chat(*new))
    assert found is not None
    assert found.cause is cause
    assert found.byte_offset <= byte < found.byte_offset + found.grain_bytes


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ([TOOL, OTHER], [OTHER, TOOL], MissCause.TOOL_ORDER),
        ([TOOL, OTHER], [BACKWARDS, OTHER], MissCause.KEY_ORDER),
        ([TOOL], [TOOL, OTHER], MissCause.TOOLS_CHANGED),
        ([TOOL, OTHER], [TOOL], MissCause.TOOLS_CHANGED),
        ([TOOL], None, MissCause.TOOLS_CHANGED),
    ],
)
def test_tools(old: Any, new: Any, cause: MissCause) -> None:
    """Tools in another order, with other keys first, more or fewer of them."""
    found = compare(chat("s", "q", tools=old), chat("s", "q", **({"tools": new} if new else {})))
    assert found is not None
    assert found.cause is cause


def test_parameters_come_first() -> None:
    """A template's argument that differs makes everything behind it differ."""
    found = compare(chat(LONG, "q", reasoning_effort="low"), chat(LONG, "q", reasoning_effort="high"))
    assert found is not None
    assert (found.cause, str(found.place)) == (MissCause.PARAMETER, "reasoning_effort")


def test_what_is_lost_is_what_both_have_behind_the_difference() -> None:
    """The common text behind a date is lost; of prompts that have nothing in common there, nothing is."""
    lost = shared_content(chat(f"Day 2026-11-30. {LONG}", "q"), chat(f"Day 2026-12-01. {LONG}", "q"))
    assert lost.after_bytes >= len(LONG)
    assert shared_content(chat(LONG, "one question"), chat(LONG, "another")).after_bytes == 0


def test_a_mark_behind_the_difference_is_not_its_cause() -> None:
    """A date that follows other words in the same 64 bytes does not take the blame for them."""
    found = compare(chat(f"For Ann on 2026-11-30. {LONG}"), chat(f"For Bob on 2026-12-01. {LONG}"))
    assert found is not None
    assert found.cause is MissCause.DYNAMIC_CONTENT
