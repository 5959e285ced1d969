"""Prompts are cut as templates see them."""

import pytest
from tests.unit.cache_misses.core.prompts import segments

from headrace.cache_misses.core.segments import UnreadableError
from headrace.domain.request import ApiDialect


def shown(dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS, **fields: object) -> list[tuple[str, bytes]]:
    return [(str(each.place), each.text) for each in segments(dialect, **fields)]


def test_a_chat_is_cut_in_the_order_of_templates() -> None:
    """Parameters, the system message, tools, then the other messages with their fields; parts one by one."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    image = {"type": "image_url", "image_url": {"url": "u"}}
    parts = {"role": "user", "content": [{"type": "text", "text": "é"}, image]}
    lead = {"role": "system", "content": "s"}
    assert shown(tools=[{"b": 1, "a": 2}], messages=[lead, parts, call], chat_template_kwargs={"x": 1}) == [
        ("chat_template_kwargs", b'{"x":1}'),
        ("messages[0].content (system)", b"s"),
        ("tools[0]", b'{"b":1,"a":2}'),
        ("messages[1].content[0].text (user)", "é".encode()),
        ("messages[1].content[1] (user)", b'{"type":"image_url","image_url":{"url":"u"}}'),
        ("messages[2].tool_calls (assistant)", b'[{"id":"c1"}]'),
    ]


def test_names_that_callers_invent_are_not_kept() -> None:
    """A role or field that no API has is called `other`."""
    assert shown(messages=[{"role": "canary", "canary": "x"}]) == [("messages[0].other (other)", b"x")]


@pytest.mark.parametrize(
    ("dialect", "fields", "expected"),
    [
        (ApiDialect.COMPLETIONS, {"prompt": "p"}, [("prompt", b"p")]),
        (ApiDialect.COMPLETIONS, {"prompt": [1, 2]}, [("prompt", b"[1,2]")]),
        (ApiDialect.RESPONSES, {"instructions": "i", "input": "q"}, [("instructions", b"i"), ("input", b"q")]),
        (
            ApiDialect.MESSAGES,
            {"system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "q"}]},
            [("system[0].text", b"s"), ("messages[0].content (user)", b"q")],
        ),
    ],
)
def test_every_api_is_read(dialect: ApiDialect, fields: dict[str, object], expected: list[tuple[str, bytes]]) -> None:
    """Completions, responses and Anthropic messages have their own fields."""
    assert shown(dialect, **fields) == expected


def test_what_is_no_prompt_is_said() -> None:
    """Messages that are no list are no prompt; the caller of this hears it as one error."""
    with pytest.raises(UnreadableError, match="cannot be read"):
        segments(messages=7)
