"""An open-loop client: each request leaves at its time whatever became of the others, on a connection of its own."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import msgspec

LATE_S = 0.1
"""A request that left later than this after its time was held up by the client itself."""


@dataclass(slots=True, kw_only=True)
class Sample:
    """One request, as its caller saw it. Wall seconds; the observer is the client."""

    at_s: float
    late_s: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float | None = None
    e2e_s: float | None = None
    failure: str | None = None

    @property
    def tpot_s(self) -> float | None:
        if self.ttft_s is None or self.e2e_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


async def replay(port: int, key: str, plan: Sequence[tuple[float, bytes]]) -> list[Sample]:
    """Send every body at its time (seconds from now); return when all have ended."""
    start_mono_s = time.monotonic() + 0.2
    tasks = [asyncio.ensure_future(_one(port, key, at_s, body, start_mono_s)) for at_s, body in plan]
    return list(await asyncio.gather(*tasks))


async def _one(port: int, key: str, at_s: float, body: bytes, start_mono_s: float) -> Sample:
    sample = Sample(at_s=at_s)
    await asyncio.sleep(max(0.0, start_mono_s + at_s - time.monotonic()))
    sent_mono_s = time.monotonic()
    sample.late_s = sent_mono_s - start_mono_s - at_s
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        try:
            writer.write(_head(key, len(body)) + body)
            await writer.drain()
            await _read(reader, sample, sent_mono_s)
        finally:
            writer.close()
    except (OSError, ValueError, asyncio.IncompleteReadError, msgspec.MsgspecError) as error:
        sample.failure = sample.failure or repr(error)
    return sample


def _head(key: str, length: int) -> bytes:
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        f"authorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


async def _read(reader: asyncio.StreamReader, sample: Sample, sent_mono_s: float) -> None:
    """Follow the stream line by line: chunk sizes and event lines are told apart by their beginning."""
    status = await reader.readline()
    if b" 200" not in status[:16]:
        sample.failure = status.decode(errors="replace").strip() or "closed without an answer"
        return
    while line := await reader.readline():
        if not line.startswith(b"data: "):
            continue
        if sample.ttft_s is None and b'"content":"' in line and b'"content":""' not in line:
            sample.ttft_s = time.monotonic() - sent_mono_s
        if b"[DONE]" in line:
            sample.e2e_s = time.monotonic() - sent_mono_s
            return
        if b'"usage":{' in line:
            usage = _decode(line[6:]).usage
            if usage is not None:
                sample.input_tokens, sample.output_tokens = usage.prompt_tokens, usage.completion_tokens
                details = usage.prompt_tokens_details
                sample.cached_tokens = (details.cached_tokens or 0) if details else 0
    sample.failure = "the stream ended without [DONE]"
