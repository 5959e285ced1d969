"""One caller's stream, read to its end: its text, who it says it is, and how it ended."""

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from tests.harness.raw_client import RawClient, post


@dataclass
class ToldStream:
    """What one caller was told."""

    body: dict[str, Any]
    text: str = ""
    identities: set[tuple[Any, ...]] = field(default_factory=set)
    """Id, model and kind of every chunk."""
    dates: set[int] = field(default_factory=set)
    """When its chunks say that it was created; llama.cpp dates each of them."""
    roles: int = 0
    reasons: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    is_ended: bool = False
    """The end mark came."""
    longest_gap_s: float = 0.0
    gap_at: int = 0
    """Letters before the longest gap: where a resumed stream has its seam."""
    pieces: int = 0
    is_over: bool = False

    @property
    def is_whole(self) -> bool:
        return self.is_ended and self.error is None and len(self.reasons) == 1 and len(self.identities) == 1

    async def read(self, port: int, key: str, path: str = "/v1/chat/completions") -> "ToldStream":
        """Send the request and read all there is. Raises where the connection ends early."""
        async with RawClient(port) as client:
            await client.send(post({"stream": True, **self.body}, key, path))
            status, _ = await client.head()
            assert status == 200, status
            rest, last_mono_s = b"", 0.0
            async for chunk in client.chunks():
                *events, rest = (rest + chunk).split(b"\n\n")
                for event in events:
                    before = len(self.text)
                    if self.take(event):
                        now = time.monotonic()
                        if last_mono_s and now - last_mono_s > self.longest_gap_s:
                            self.longest_gap_s, self.gap_at = now - last_mono_s, before
                        last_mono_s = now
            assert rest == b"", "half an event"
        self.is_over = True
        return self

    def take(self, event: bytes) -> bool:
        """Read one event; True where it had text."""
        payload = event.removeprefix(b"data: ")
        if event.startswith(b":"):
            return False
        assert not self.is_ended, "events after the end mark"
        if payload == b"[DONE]":
            self.is_ended = True
            return False
        chunk = json.loads(payload)
        if "error" in chunk:
            self.error = chunk["error"]
            return False
        self.usage = chunk.get("usage") or self.usage
        self.identities.add((chunk["id"], chunk["model"], chunk["object"]))
        self.dates.add(chunk["created"])
        for choice in chunk["choices"]:
            assert choice["index"] == 0
            delta = choice.get("delta", choice)
            self.roles += bool(delta.get("role"))
            text = delta.get("content") or delta.get("text") or ""
            self.text += text
            self.pieces += bool(text)
            if choice["finish_reason"]:
                self.reasons.append(choice["finish_reason"])
        return bool(chunk["choices"]) and bool(text)


def text_in(answer: bytes) -> str:
    """The text of the whole events in the bytes of an answer, chunked or not."""
    stream = ToldStream({})
    for found in re.findall(rb"data: (?:\{.*\})(?=\n\n)", answer):
        stream.take(found)
    return stream.text
