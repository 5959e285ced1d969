"""`headrace route compare`: two requests side by side, without sending either. See `routing/core/divergence.py`."""

import msgspec

from headrace.gateway.routing.core.divergence import find_divergence
from headrace.gateway.routing.core.shape import read_fields, shape_of


class PromptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Where the later of two prompts leaves the earlier; `cause` None: it does not."""

    cause: str | None
    place: str | None = None
    """In the later request."""
    message: int | None = None
    """Index of the message."""
    byte_offset: int | None = None
    """Into that text; it differs within the next 64 bytes."""
    shared_bytes: int
    shared_tokens: int
    """Estimated: four bytes a token."""
    lost_bytes: int = 0
    lost_tokens: int = 0
    """Of the earlier prompt, computed again."""
    advice: str | None = None


def compare_prompts(earlier: bytes, later: bytes) -> PromptComparison:
    """Compare two request bodies. Raises: ValueError for what is no JSON object."""
    before, after = shape_of(read_fields(earlier)), shape_of(read_fields(later))
    found = find_divergence(before, after)
    if found is None:
        shared = sum(piece.size_bytes for piece in before)
        return PromptComparison(cause=None, shared_bytes=shared, shared_tokens=shared // 4)
    return PromptComparison(
        cause=found.cause.value,
        place=found.place,
        message=found.message,
        byte_offset=found.byte_offset,
        shared_bytes=found.shared_bytes,
        shared_tokens=found.shared_tokens,
        lost_bytes=found.lost_bytes,
        lost_tokens=found.lost_tokens,
        advice=found.advice,
    )
