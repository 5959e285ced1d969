"""What to know of an answer that is not streamed: its usage and id, read without decoding the rest."""

import msgspec

from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.forwarding.streams.watch import Usage


class Envelope(msgspec.Struct):
    id: str | None = None
    usage: Usage | None = None


_decode = msgspec.json.Decoder(Envelope).decode


def read_envelope(body: bytes) -> tuple[TokenUsage, str | None] | None:
    """Return usage and id of a whole answer, or None where `body` is not a JSON object (the answer is broken then)."""
    try:
        envelope = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return envelope.usage.counted() if envelope.usage else UNKNOWN_USAGE, envelope.id
