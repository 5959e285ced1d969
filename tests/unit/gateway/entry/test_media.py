"""Remote media are fetched by engines from inside the operator's network: only allowed hosts pass."""

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.entry.media import MediaPolicy


def fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


def with_image(reference: str) -> dict[str, msgspec.Raw]:
    part = {"type": "image_url", "image_url": {"url": reference}}
    return fields_of(msgspec.json.encode({"messages": [{"role": "user", "content": [part]}]}))


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}]}',
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"http://evil/"}]}]}',
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image\\u005furl":{"u\\u0072l":"http://evil/"}}]}]}',
        b'{"messages":[{"role":"user","content":{"type":"x","video_url":{"url":"http://evil/"}}}]}',
        b'{"messages":[{"role":"user","content":"x","image_url":"http://evil/"}]}',
        b'{"messages":{"content":[{"image_url":{"url":"http://evil/"}}]}}',
        b'{"messages":["x",{"content":[{"image_url":{"url":"http://evil/"}}]}]}',
        b'{"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://evil/"}]}]}',
        b'{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"http://evil/"}}]}]}',
        b'{"system":[{"type":"image","source":{"type":"url","url":"http://evil/"}}]}',
    ],
)
def test_remote_media_is_refused_wherever_it_hides(body: bytes) -> None:
    """In any dialect, at any depth, with escaped keys or in the wrong shape."""
    with pytest.raises(RequestError) as refused:
        MediaPolicy(()).check(fields_of(body))
    assert refused.value.code is ErrorCode.UNSUPPORTED_PARAMETER


@pytest.mark.parametrize(
    "reference", ["file:///etc/passwd", "ftp://good.example/x", "//good.example/x", "/etc/passwd", "", "http://["]
)
def test_only_web_addresses_can_be_allowed(reference: str) -> None:
    """Files, other schemes and half addresses are refused though their host is allowed."""
    with pytest.raises(RequestError):
        MediaPolicy(("good.example",)).check(with_image(reference))


@pytest.mark.parametrize(
    "reference",
    [
        "http://evil.example\\@good.example/x",
        "http://good.example\\@evil.example/x",
        "http://user@good.example/x",
        "http://good.example:80@evil.example/x",
        "http://evil.example/\t@good.example/",
        "ht\ntp://good.example/x",
        " http://good.example/x",
        "http://good.example.evil.example/x",
        "http://good.example./x",
    ],
)
def test_an_address_that_two_parsers_may_read_apart_is_refused(reference: str) -> None:
    """What an engine fetches must be the host that was checked."""
    with pytest.raises(RequestError):
        MediaPolicy(("good.example",)).check(with_image(reference))


@pytest.mark.parametrize(
    "reference",
    ["data:image/png;base64,AAAA", "DATA:image/png,x", "https://good.example/x.png", "http://GOOD.example:8080/x?y=@"],
)
def test_inline_media_and_allowed_hosts_pass(reference: str) -> None:
    """Data URLs always; an allowed host in any case and at any port."""
    MediaPolicy(("Good.Example",)).check(with_image(reference))


def test_text_about_an_address_is_text() -> None:
    """Content, and text parts, may speak of URLs."""
    text = b'{"messages":[{"content":"see http://evil/"},{"content":[{"type":"text","text":"url: http://evil/"}]}]}'
    MediaPolicy(()).check(fields_of(text))
    MediaPolicy(()).check(fields_of(b'{"input":"http://evil/","messages":null}'))


def test_inline_media_are_counted_where_engines_look_for_them() -> None:
    """Pictures and files in data: URLs, of any message; text that only looks like one is text."""
    picture, file = "data:image/png;base64," + "A" * 1000, "DATA:application/pdf;base64," + "B" * 500
    parts = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "file", "file": {"file_data": file}},
        {"type": "text", "text": picture},
    ]
    body = {"messages": [{"role": "user", "content": parts}, {"role": "user", "content": picture}]}
    content = MediaPolicy(()).check(fields_of(msgspec.json.encode(body)))
    assert (content.media, content.media_bytes) == (2, len(picture) + len(file))


@pytest.mark.parametrize("sign", ["a", ":", "\u2100"])
def test_a_reference_of_megabytes_is_not_taken_apart(sign: str) -> None:
    """A URL longer than any server takes is refused for its length, whatever it holds."""
    with pytest.raises(RequestError, match="characters; 16384 are the most"):
        MediaPolicy(("good.example",)).check(with_image("http://good.example/" + sign * 16384))
