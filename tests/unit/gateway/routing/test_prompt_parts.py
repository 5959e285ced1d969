"""The parts of a prompt, as slices of the caller's bytes."""

import msgspec
import pytest

from headrace.domain.request import ApiDialect
from headrace.gateway.routing.prompt_parts import prompt_parts

decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def parts(body: str, dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS) -> list[str]:
    return [bytes(part).decode() for part in prompt_parts(decode(body.encode()), dialect)]


def test_without_tools_the_messages_are_the_prompt() -> None:
    """Nothing is decoded or copied: the bytes are the caller's own."""
    assert parts('{"messages": [{"role":"user","content":"hi"}], "seed": 1}') == ['[{"role":"user","content":"hi"}]']


def test_tools_come_after_the_system_message() -> None:
    """Requests with the same system message and other tools still have the beginning in common."""
    body = (
        '{"tools":[1],"messages":[{"role":"system","content":"a \\"quoted\\" {brace}"},{"role":"user","content":"u"}]}'
    )
    system, tools, rest = parts(body)
    assert system == '[{"role":"system","content":"a \\"quoted\\" {brace}"},'
    assert (tools, rest) == ("[1]", '{"role":"user","content":"u"}]')


@pytest.mark.parametrize("first", ['{"role":"user","content":"u"}', '{"role":"system","content":[{"text":"s"}]}'])
def test_tools_come_first_where_the_system_message_cannot_be_told(first: str) -> None:
    """Without a plain system message, tools lead, as most templates have it."""
    assert parts('{"tools":[1],"messages":[' + first + "]}") == ["[1]", f"[{first}]"]


def test_each_dialect_has_its_order() -> None:
    """System, tools, messages, under the names of each API; embeddings have no prompt to share."""
    messages = '{"messages":[2],"tools":[1],"system":"s"}'
    assert parts(messages, ApiDialect.MESSAGES) == ['"s"', "[1]", "[2]"]
    assert parts('{"input":"i","instructions":"n"}', ApiDialect.RESPONSES) == ['"n"', '"i"']
    assert parts('{"prompt":"p"}', ApiDialect.COMPLETIONS) == ['"p"']
    assert parts('{"input":"i"}', ApiDialect.EMBEDDINGS) == []


def test_a_hostile_first_message_is_looked_at_once() -> None:
    """A megabyte of backslashes or braces in the first message costs no more than reading it."""
    for text in ("\\\\" * 300_000, "{" * 600_000, "[" * 600_000):
        body = '{"tools":[1],"messages":[{"role":"system","content":"' + text + '"}]}'
        assert len(parts(body)) in (2, 3)
