"""Lines of a batch's input."""

import pytest

from headrace.batch.core.lines import LineRefusedError, read_line

CHAT = "/v1/chat/completions"


def test_a_line_is_read_with_its_body_as_written() -> None:
    """What the caller wrote is what is sent, byte for byte."""
    line = read_line(b'{"custom_id":"1","url":"/v1/chat/completions","body":{"model":"m", "x":1.0}}\n', 1, CHAT)
    assert (line.custom_id, bytes(line.body)) == ("1", b'{"model":"m", "x":1.0}')


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"\xff\xfe", "invalid_json_line"),
        (b'{"custom_id":"1","x":' + b"[" * 3000 + b"]" * 3000 + b"}", "invalid_json_line"),
        (b"[]", "invalid_request"),
        (b'{"url":"/v1/chat/completions","body":{"model":"m"}}', "invalid_request"),
        (b'{"custom_id":"1","url":"/v1/chat/completions","body":{}}', "invalid_request"),
        (b'{"custom_id":"%b","url":"/v1/chat/completions","body":{"model":"m"}}' % (b"x" * 513), "invalid_custom_id"),
        (b'{"custom_id":"1","url":"/v1/embeddings","body":{"model":"m"}}', "mismatched_url"),
    ],
)
def test_what_cannot_be_sent_says_why(text: bytes, code: str) -> None:
    """Each refusal names the line and has a code of its own."""
    with pytest.raises(LineRefusedError) as caught:
        read_line(text, 3, CHAT)
    assert (caught.value.problem.code, caught.value.problem.line) == (code, 3)
