"""What to know of an answer that is not streamed: its usage and id, read without decoding the rest; or what came."""

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.forwarding.streams.watch import (
    FAILED_REASONS,
    Usage,
    aborted,
    read_members,
    read_text,
    read_usage,
)

STREAM_TYPE = {b"content-type": b"text/event-stream"}
_NULL = msgspec.Raw(b"null")


class FinishedChoice(msgspec.Struct):
    finish_reason: str | None = None


class Envelope(msgspec.Struct):
    id: str | None = None
    usage: Usage | None = None
    error: msgspec.Raw = _NULL
    object: str | None = None
    status: str | None = None
    """Of a Responses answer."""
    choices: list[FinishedChoice] | None = None

    @property
    def failure(self) -> bytes | None:
        """What an engine's error would say, where an answer with status 200 is none after all; None where it is one."""
        if self.error != _NULL:
            return msgspec.json.encode({"error": self.error})
        if self.status == "failed" or self.object == "error":
            return aborted(self.status or self.object)
        for choice in self.choices or ():
            if choice.finish_reason in FAILED_REASONS:
                return aborted(choice.finish_reason)
        return None


_decode = msgspec.json.Decoder(Envelope).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_envelope(body: bytes) -> Envelope | None:
    """Return what is to be known of a whole answer, or None where `body` is not a JSON object (it is broken then).

    What is odd in it, such as counts in quotes, is as if it had not been said: an answer that has come whole is the
    caller's.
    """
    try:
        return _decode(body)
    except UNDECODABLE:
        members = read_members(body)
    if members is None:
        return None
    texts = {name: read_text(members.get(name)) for name in ("id", "object", "status")}
    return Envelope(
        **texts,
        usage=read_usage(members.get("usage", b"null")),
        error=members.get("error", _NULL),
        choices=_read_choices(members.get("choices")),
    )


def _read_choices(raw: msgspec.Raw | None) -> list[FinishedChoice] | None:
    try:
        choices = None if raw is None else _decode_list(raw)
    except UNDECODABLE:
        return None
    return [FinishedChoice(read_text((read_members(one) or {}).get("finish_reason"))) for one in choices or ()]


_SPOKEN = ((b"\x1f\x8b", "gzip"), (b"<", "HTML or XML"), (b"data:", "events"), (b"event:", "events"), (b":", "events"))


def what_came(body: bytes) -> str:
    """Say what a body is in place of a JSON object."""
    body = body.lstrip()
    if not body:
        return "nothing"
    for beginning, name in _SPOKEN:
        if body.startswith(beginning):
            return name
    return "broken JSON" if body.startswith((b"{", b"[")) else "something else"


def without_echo(body: bytes, echo: str) -> bytes:
    """Take `echo` off the beginning of an answer's text: of each choice, or of the first text of a Messages or
    Responses answer. An answer that does not begin with it is left as it is.
    """
    answer: dict[str, Any] = msgspec.json.decode(body)
    for holder, key in _texts(answer):
        text: object = holder.get(key)
        if isinstance(text, str) and text.startswith(echo):
            holder[key] = text[len(echo) :]
    return msgspec.json.encode(answer)


def _texts(answer: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the texts of an answer are, in any of the three dialects."""
    for choice in answer.get("choices") or ():
        yield choice["message"], "content"
    for part in answer.get("content") or ():
        if part.get("type") == "text":
            yield part, "text"
            break
    for item in answer.get("output") or ():
        if item.get("type") == "message":
            for part in (item.get("content") or ())[:1]:
                yield part, "text"
