"""Two requests side by side."""

import json

import pytest

from headrace.rehearsal.prompt_comparison import compare_prompts


def body(system: str, *turns: str) -> bytes:
    messages = [{"role": "system", "content": system}, *({"role": "user", "content": turn} for turn in turns)]
    return json.dumps({"model": "m", "messages": messages}).encode()


def test_a_time_at_the_beginning_is_found() -> None:
    """The most usual mistake is named with its place, its price and its remedy."""
    rules = "Be brief. " * 100
    found = compare_prompts(body(f"It is 08:15. {rules}", "a"), body(f"It is 08:16. {rules}", "a", "b"))
    assert (found.cause, found.place, found.message, found.byte_offset) == ("date or time", "messages[0].content", 0, 0)
    assert found.lost_tokens > 200
    assert found.advice is not None
    assert "end of the prompt" in found.advice


def test_a_sound_conversation_says_what_it_shares() -> None:
    """Nothing is wrong, and how much can be cached is said."""
    found = compare_prompts(body("Be brief. " * 100, "a"), body("Be brief. " * 100, "a", "b"))
    assert found.cause is None
    assert found.shared_tokens > 200


@pytest.mark.parametrize("broken", [b"", b"[]", b"{"])
def test_what_is_no_request_is_refused(broken: bytes) -> None:
    """A file that holds no JSON object is said to."""
    with pytest.raises(ValueError, match="not a JSON object"):
        compare_prompts(broken, b"{}")
