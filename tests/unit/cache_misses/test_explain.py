"""Two request files compared without a gateway."""

import json

import pytest

from headrace.cache_misses.explain import PromptFileError, explain_bodies
from headrace.domain.miss_status import MissCause
from headrace.domain.request import ApiDialect

CHAT = ApiDialect.CHAT_COMPLETIONS


def body(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "system", "content": text}]}).encode()


def test_the_byte_is_exact() -> None:
    """With both texts at hand the first byte that differs is named, in UTF-8."""
    rules = "The wheel turns by day and by night. " * 9
    found = explain_bodies(body("ä" * 500 + f"Alice. {rules}"), body("ä" * 500 + f"Alica. {rules}"), CHAT)
    assert (found.cause, found.byte_offset) == (MissCause.DYNAMIC_CONTENT, 1004)
    assert (found.message, found.field, found.token_offset) == (0, "content", 251)


def test_equal_prompts_have_no_cause() -> None:
    """Requests that begin alike are said to."""
    found = explain_bodies(body("s"), b'{ "messages": [{"content":"s", "role" : "system"}] }', CHAT)
    assert (found.cause, found.shared_bytes) == (None, 1)


@pytest.mark.parametrize("broken", [b"{", b"[]", b"{}", b'{"messages":[1]}'])
def test_a_file_that_is_no_request_is_named(broken: bytes) -> None:
    """Which of the two files is wrong is said."""
    with pytest.raises(PromptFileError, match="request B"):
        explain_bodies(body("s"), broken, CHAT)
