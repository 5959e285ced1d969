"""What one request consumed."""

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one request, as the engine counted them.

    Units: tokens. None means "the engine did not say", never zero.
    """

    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None = None


UNKNOWN_USAGE = TokenUsage(input_tokens=None, output_tokens=None)
"""Usage of a request for which the engine reported nothing."""
