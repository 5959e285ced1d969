"""A stream that goes on with another engine's: what is left out, renamed and corrected."""

import json
from typing import Any

import pytest

from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.resumed_chunks import ResumedChunks, closing_events


def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
    chunk = {"id": "b", "object": "chat.completion.chunk", "created": 2, "model": "m2", "choices": choices, **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(content: str | None = None, reason: str | None = None, **more: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": ({} if content is None else {"content": content}) | more, "finish_reason": reason}]


FIRST = b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"f"}\n\n'


def resumed(first: bytes = FIRST, *, hides_usage: bool = False, **seam: Any) -> ResumedChunks:
    had = Had(text="Once ", tokens=2, first_event=first)
    return ResumedChunks(had, Seam("Once ", **seam), hides_usage=hides_usage, guessed_input_tokens=None)


def chunks(block: bytes) -> list[dict[str, Any]]:
    return [json.loads(part.removeprefix(b"data: ")) for part in block.split(b"\n\n") if part and b"[DONE]" not in part]


def test_the_second_beginning_is_left_out_and_the_name_stays() -> None:
    """No second role; id, date and model are the first stream's."""
    watch = resumed()
    assert watch.feed(event(delta(role="assistant", content=""))) == b""
    [chunk] = chunks(watch.feed(event(delta("upon"))))
    assert (chunk["id"], chunk["created"], chunk["model"]) == ("a", 1, "m")
    assert "system_fingerprint" not in chunk
    assert chunk["choices"][0]["delta"] == {"content": "upon"}


def test_where_nothing_had_come_the_second_beginning_is_the_first() -> None:
    """A comment was all that the caller had: the role goes out, and the name is the new engine's."""
    watch = resumed(b"")
    [chunk] = chunks(watch.feed(event(delta(role="assistant", content=""))))
    assert chunk["choices"][0]["delta"]["role"] == "assistant"
    assert chunk["id"] == "b"


def test_usage_is_of_the_whole_answer() -> None:
    """What the caller had counts as output and not as prompt, in the stream and in the ledger."""
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 11},
    }
    watch = resumed()
    watch.feed(event(delta("upon")) + event(delta(reason="stop")))
    [chunk] = chunks(watch.feed(event([], usage=dict(usage))))
    assert chunk["usage"] == {
        "prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17, "prompt_tokens_details": {"cached_tokens": 10},
    }  # fmt: skip
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens, watch.usage.cached_input_tokens) == (10, 7, 10)
    assert resumed(hides_usage=True).feed(event([], usage=usage)) == b""


def test_tokens_that_an_engine_merges_are_no_prompt_of_the_callers() -> None:
    """Two tokens were generated, one is what the next prompt has of them."""
    had = Had(text="Once ", tokens=2, first_event=FIRST, token_ids=(5,))
    watch = ResumedChunks(had, Seam("Once "), hides_usage=False, guessed_input_tokens=None)
    watch.feed(event(delta("upon")) + event(delta(reason="stop")))
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    [chunk] = chunks(watch.feed(event([], usage=usage)))
    assert chunk["usage"] == {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens) == (10, 7)


def test_a_stop_text_across_the_seam_cuts_the_stream() -> None:
    """What follows is the engine's alone; the answer has an end of ours."""
    watch = resumed(stops=("ce upon",))
    assert watch.feed(event(delta("up"))) == b""
    end = watch.feed(event(delta("on a")) + event(delta(" time")))
    assert chunks(end)[0]["choices"][0]["finish_reason"] == "stop"
    assert end.endswith(b"data: [DONE]\n\n")
    assert watch.is_done
    assert watch.is_cut_short
    assert watch.error is None


def test_it_can_break_again() -> None:
    """What the caller has is then all of it; once a tool is called it cannot go on."""
    watch = resumed()
    watch.feed(event(delta("upon")))
    had = watch.had()
    assert isinstance(had, Had)
    assert (had.text, had.tokens, had.first_event) == ("Once upon", 3, FIRST)
    watch.feed(event(delta(tool_calls=[{"index": 0}])))
    assert watch.had() is ResumeBar.TOOLS


@pytest.mark.parametrize("reason", ["length", None])
def test_an_end_that_is_missing_is_made(reason: str | None) -> None:
    """The finish reason where it has not come, usage where it is wanted, marked as an estimate, and the end mark."""
    made = closing_events(Had(text="", tokens=3, first_event=FIRST), reason, 7)
    last = chunks(made)
    assert [chunk["choices"][0]["finish_reason"] for chunk in last if chunk["choices"]] == ([reason] if reason else [])
    assert last[-1]["usage"] == {
        "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "estimated": True,
    }  # fmt: skip
    assert made.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "payload",
    [b"{broken", b"[1]", b'{"choices":[null]}', b'{"choices":{"a":1}}', b'{"choices":[{"index":0,"delta":"text"}]}',
     b'{"choices":[{"index":0,"delta":{"content":7}}]}'],
)  # fmt: skip
def test_what_is_not_understood_passes_and_the_stream_goes_on(payload: bytes) -> None:
    """The caller gets the event as it came, and what follows; the stream is not resumed a second time."""
    watch, odd = resumed(), b"data: " + payload + b"\n\n"
    passed = watch.feed(odd + event(delta("upon")))
    assert passed.startswith(odd)
    assert b'"upon"' in passed
    assert watch.had() is ResumeBar.FIELD
