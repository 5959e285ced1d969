"""What asks for a continuation, and what an unproved row lets pass."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.errors import RequestError
from headrace.domain.request import ApiDialect
from headrace.engines.continuation import ContinuationRow, Fact, Trailing
from headrace.engines.structured_output import CannotSayError
from headrace.gateway.entry.continuations import Continuation, read_continuation, write_continuation

CHAT = ApiDialect.CHAT_COMPLETIONS
USER = {"role": "user", "content": "hi"}
BEGUN = {"role": "assistant", "content": "hello"}
PROVED = Fact(holds=True, proved_by="x")
NO = Fact(holds=False, proved_by="x")
ROW = ContinuationRow(
    apis=frozenset({CHAT}),
    asked_with={"go_on": True},
    trailing=Trailing.NEW_TURN,
    whole_echoes=PROVED,
    stream_echoes=NO,
)


def raw(body: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}


def read(body: dict[str, Any], api: ApiDialect = CHAT) -> Continuation | None:
    return read_continuation(raw(body), api)


def write(body: dict[str, Any], row: ContinuationRow = ROW, *, is_stream: bool = False, **more: bool) -> Any:
    asked = read(body)
    assert asked is not None
    options = {"is_unproved_allowed": False, "is_constrained": False, **more}
    return write_continuation(asked, row, CHAT, raw(body), is_stream=is_stream, **options)


def test_a_last_message_of_the_assistants_is_seen() -> None:
    """Whether it is asked to be continued depends on flag and API."""
    assert read({"messages": [USER]}) is None
    assert read({"messages": [BEGUN, USER]}) is None
    unasked, asked = (
        read({"messages": [USER, BEGUN]}),
        read({"messages": [USER, BEGUN], "continue_final_message": True}),
    )
    assert unasked is not None
    assert asked is not None
    assert (unasked.is_asked, asked.is_asked, asked.prefix) == (False, True, "hello")
    messages = read({"messages": [USER, BEGUN]}, ApiDialect.MESSAGES)
    assert messages is not None
    assert messages.is_asked


def test_words_and_echo_are_the_rows() -> None:
    """The engine's own fields replace the caller's; a whole answer's echo is taken off, a stream has none."""
    body = {"messages": [USER, BEGUN], "continue_final_message": True}
    whole, stream = write(body), write(body, is_stream=True)
    assert (whole.added, whole.dropped, whole.echo) == ({"go_on": True}, {"continue_final_message"}, "hello")
    assert (stream.added, stream.echo) == ({"go_on": True}, None)


@pytest.mark.parametrize("wish", ["logprobs", "stop", "reasoning_effort"])
def test_what_is_not_proved_is_refused_when_asked_for(wish: str) -> None:
    """Unless the operator lets it pass."""
    body = {"messages": [USER, BEGUN], "continue_final_message": True, wish: 1}
    with pytest.raises(CannotSayError, match="not proved"):
        write(body)
    assert write(body, is_unproved_allowed=True).added == {"go_on": True}


def test_an_unasked_last_message_begins_a_new_turn() -> None:
    """Where the engine does so, nothing is changed but flags that mean nothing."""
    words = write({"messages": [USER, BEGUN], "add_generation_prompt": True})
    assert (words.added, words.dropped, words.echo) == ({}, {"add_generation_prompt"}, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner),
    max_leaves=6,
)


@given(messages=JSON, flag=JSON, other=JSON, api=st.sampled_from(ApiDialect))
def test_odd_messages_never_raise_anything_else(messages: object, flag: object, other: object, api: ApiDialect) -> None:
    """Whatever a caller sends is read, ignored or refused."""
    body = {"messages": messages, "input": messages, "continue_final_message": flag, "add_generation_prompt": other}
    try:
        asked = read(body, api)
        if asked is not None:
            write_continuation(
                asked, ROW, api, raw(body), is_stream=False, is_unproved_allowed=False, is_constrained=False
            )
    except (RequestError, CannotSayError):
        pass
