"""What a chat stream says of itself, and what of it the caller gets."""

import pytest

from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.streams.chunks import ChunkWatch

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def fed(*blocks: bytes, hides_usage: bool = False) -> tuple[ChunkWatch, bytes]:
    watch = ChunkWatch(hides_usage=hides_usage)
    return watch, b"".join([watch.feed(block) for block in blocks])


def test_a_role_is_no_output() -> None:
    """Time to first token counts from the first token, not from the chunk that names the speaker."""
    watch, _ = fed(ROLE)
    assert (watch.has_output, watch.output_events) == (False, 0)
    watch.feed(WORD)
    assert (watch.has_output, watch.output_events) == (True, 1)


@pytest.mark.parametrize(
    "delta",
    [
        b'{"content":"x"}',
        b'{"reasoning_content":"x"}',
        b'{"reasoning":"x"}',
        b'{"refusal":"x"}',
        b'{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}',
        b'{"function_call":{"arguments":"{"}}',
    ],
)
def test_every_kind_of_output_counts(delta: bytes) -> None:
    """Text, reasoning, refusals and tool calls are output."""
    assert fed(b'data: {"choices":[{"delta":%b}]}\n\n' % delta)[0].has_output


@pytest.mark.parametrize("delta", [b"{}", b"null", b'{"content":""}', b'{"tool_calls":[]}', b'{"tool_calls":null}'])
def test_empty_pieces_are_no_output(delta: bytes) -> None:
    """Nothing, said in any way, is nothing."""
    assert not fed(b'data: {"choices":[{"delta":%b}]}\n\n' % delta)[0].has_output


def test_text_completions_count_too() -> None:
    """The older API's `text`."""
    assert fed(b'data: {"choices":[{"text":"x"}]}\n\n')[0].has_output


def test_many_events_in_one_block_are_counted_one_by_one() -> None:
    """On the short way as on the long one."""
    assert fed(WORD + WORD, WORD * 3)[0].output_events == 5


def test_only_the_usage_we_asked_for_is_taken_out() -> None:
    """The event and the nulls go; to a caller that asked, everything passes."""
    nulls = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'
    stream = (ROLE, nulls, FINISH, USAGE, DONE)
    assert fed(*stream, hides_usage=True)[1] == ROLE + WORD.replace(b'"index":0,', b"") + FINISH + DONE
    assert fed(*stream)[1] == b"".join(stream)
    for hides_usage in (True, False):
        watch, _ = fed(*stream, hides_usage=hides_usage)
        assert watch.usage == TokenUsage(input_tokens=7, output_tokens=3)
        assert watch.is_done


def test_text_that_looks_like_a_marker_stays() -> None:
    """A model may write about usage, errors and [DONE]; none of it ends or changes the stream."""
    text = b'data: {"choices":[{"delta":{"content":",\\"usage\\":null [DONE] \\"error\\": data: [DONE]"}}]}\n\n'
    watch, passed = fed(WORD, text, hides_usage=True)
    assert passed == WORD + text
    assert (watch.is_done, watch.error, watch.output_events) == (False, None, 2)


@pytest.mark.parametrize("first", [b"", WORD])
def test_an_error_ends_the_stream_and_done_does_not_follow(first: bytes) -> None:
    """The error is kept for us; a mark of success after it is dropped."""
    error = b'data: {"error":{"message":"dead","code":500}}\n\n'
    watch, passed = fed(first + error + DONE, WORD, DONE)
    assert passed == first
    assert watch.error == b'{"error":{"message":"dead","code":500}}'
    assert not watch.is_done


def test_the_older_error_field_of_llamacpp_is_an_error() -> None:
    """`error: {...}` instead of `data:`."""
    watch, passed = fed(b'error: {"message":"dead"}\n\n', DONE)
    assert (watch.error, passed, watch.is_done) == (b'{"message":"dead"}', b"", False)


def test_nothing_passes_after_the_end() -> None:
    """What an engine sends after [DONE] is no part of the answer."""
    assert fed(WORD + FINISH + DONE + WORD, WORD)[1] == WORD + FINISH + DONE


@pytest.mark.parametrize("event", [b": ping\n\n", b"data: {broken\n\n", b"data: 1\n\n", b'data: {"choices":1}\n\n'])
def test_what_is_not_understood_passes(event: bytes) -> None:
    """Comments and odd payloads are the caller's to judge."""
    watch, passed = fed(WORD, event, FINISH, DONE)
    assert passed == WORD + event + FINISH + DONE
    assert watch.is_done


@pytest.mark.parametrize("stream", [(DONE,), (ROLE, WORD, DONE), (WORD + DONE,), (WORD, USAGE, DONE)])
def test_an_end_mark_without_a_finish_reason_is_no_success(stream: tuple[bytes, ...]) -> None:
    """An engine that is stopped in the middle may send its end mark all the same."""
    watch, passed = fed(*stream)
    assert watch.error is not None
    assert not watch.is_done
    assert b"[DONE]" not in passed


def test_every_choice_must_be_finished() -> None:
    """With n: 2, one finished choice does not make the other one whole."""
    begun = ROLE + ROLE.replace(b'"index":0', b'"index":1') + WORD
    assert fed(begun, FINISH, DONE)[0].error is not None
    assert fed(begun, FINISH, FINISH.replace(b'"index":0', b'"index":1'), DONE)[0].is_done


@pytest.mark.parametrize("reason", [b"abort", b"error", b"cancelled", b"timeout"])
def test_an_engine_that_gave_up_has_not_finished(reason: bytes) -> None:
    """Finish reasons of engines that stopped the request themselves are errors, and are not passed on."""
    watch, passed = fed(WORD, FINISH.replace(b"stop", reason), DONE)
    assert (passed, watch.is_done) == (WORD, False)
    assert watch.error is not None
    assert reason in watch.error


def test_running_usage_is_the_last_not_the_sum() -> None:
    """Engines that report so far in every chunk are counted once; final events of several choices add up."""
    running = [
        b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":%d}}\n\n' % count
        for count in (1, 2, 3)
    ]
    assert fed(*running, USAGE)[0].usage == TokenUsage(input_tokens=7, output_tokens=3)
    assert fed(USAGE, USAGE)[0].usage == TokenUsage(input_tokens=7, output_tokens=6)


@pytest.mark.parametrize("idle", [ROLE, b'data: {"choices":[{"index":1,"delta":{"content":""}}]}\n\n'])
def test_pieces_without_output_are_not_counted_once_output_has_begun(idle: bytes) -> None:
    """The second choice's role, or empty text, is no token, however the blocks are cut."""
    assert fed(WORD, idle, WORD)[0].output_events == 2
    assert fed(WORD + idle + WORD)[0].output_events == 2


@pytest.mark.parametrize(
    ("text", "outputs"),
    [(b"b", 1), (b"", 0), (b'\\"', 1), (b'"}},{"index":1,"delta":{"content":"c', 1), (b"\\\\", 1)],
)
def test_an_event_is_plain_only_where_its_text_ends_where_it_seems_to(text: bytes, outputs: int) -> None:
    """Once the look of a stream's events is known they are not decoded; counts stay those of decoding."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    watch, passed = fed(event % b"a", event % text)
    assert passed == event % b"a" + event % text
    assert watch.output_events == 1 + outputs


def test_an_end_after_plain_events_is_seen() -> None:
    """A finish, usage, an error and the end mark look different, and are read."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    watch, _ = fed(event, event, FINISH, USAGE, DONE)
    assert (watch.output_events, watch.is_done, watch.error) == (2, True, None)
    watch, passed = fed(event, event, b'data: {"error":{"message":"broken"}}\n\n')
    assert (watch.error is not None, passed) == (True, event + event)


def test_events_that_change_their_look_are_counted_all_the_same() -> None:
    """Some engines write the time into every event: what a plain one looks like is learned anew."""
    events = [
        b'data: {"created":%d,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
        % (number // 20)
        for number in range(100)
    ]
    watch, passed = fed(*events, FINISH, DONE)
    assert passed == b"".join(events) + FINISH + DONE
    assert (watch.output_events, watch.is_done) == (100, True)
