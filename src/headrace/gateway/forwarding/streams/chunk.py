"""One event of a chat or completion stream, as far as a watcher looks at it. Counterpart: `chunks.py`.

A module of its own, since `chunks.py` may be compiled (docs/decisions/0008), and what is decoded may not.
"""

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.forwarding.core.bars import ResumeBar
from headrace.gateway.forwarding.streams.watch import Usage, read_members, read_text, read_usage


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"null")
    function_call: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def has_call(self) -> bool:
        return bytes(self.tool_calls) not in (b"null", b"[]") or bytes(self.function_call) != b"null"


class Choice(msgspec.Struct):
    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    @property
    def has_output(self) -> bool:
        if self.text:
            return True
        delta = self.delta
        if delta is None:
            return False
        if delta.content or delta.reasoning_content or delta.reasoning or delta.refusal:
            return True
        return delta.has_call

    @property
    def bar(self) -> ResumeBar | None:
        """What of this piece a continuation of its text could not go on with."""
        if self.index:
            return ResumeBar.CHOICES
        delta = self.delta
        if delta is None:
            return None
        if delta.reasoning_content or delta.reasoning:
            return ResumeBar.REASONING
        if delta.refusal:
            return ResumeBar.FIELD
        return ResumeBar.TOOLS if delta.has_call else None


class Chunk(msgspec.Struct):
    object: str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(Chunk).decode
_decode_choice = msgspec.json.Decoder(Choice).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_chunk(payload: bytes) -> Chunk | None:
    """Read one event, member by member where one of them is odd: that one is then as if it had not been said. None:
    it is no object, or a choice of it is none that could be watched.
    """
    try:
        return _decode(payload)
    except UNDECODABLE:
        members = read_members(payload)
    if members is None:
        return None
    chunk = Chunk(object=read_text(members.get("object")))
    if "error" in members:
        chunk.error = members["error"]
    if "usage" in members:
        chunk.usage = read_usage(members["usage"])
    raw = members.get("choices")
    try:
        if raw is not None and bytes(raw) != b"null":
            chunk.choices = [_decode_choice(choice) for choice in _decode_list(raw)]
    except UNDECODABLE:
        return None
    return chunk
