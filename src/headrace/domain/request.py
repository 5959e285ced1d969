"""One inference request, as the gateway understands it: read once at entry, edited only where it must be."""

from enum import StrEnum

import msgspec


class ApiDialect(StrEnum):
    """Which public API a request speaks. The value is what logs and the ledger show."""

    CHAT_COMPLETIONS = "chat.completions"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    RESPONSES = "responses"
    MESSAGES = "messages"


USAGE_OPTION = b'{"stream_options":{"include_usage":true},'
STREAMS_WITH_USAGE_OPTION = frozenset({ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS})
"""Dialects whose streams report usage only when asked. Source: OpenAI API reference, `stream_options`."""


class InferenceRequest(msgspec.Struct, kw_only=True):
    """A request after entry. Not changed afterwards; a Struct, since one is made per request on the hot path."""

    dialect: ApiDialect
    path: bytes
    """Path at the engine, without a pool's own prefix."""
    requested_model: str
    body: bytes
    """Exactly as the caller sent it."""
    fields: dict[str, msgspec.Raw]
    """Top-level fields of the body, not decoded any further."""
    is_stream: bool
    wants_usage: bool
    """The caller asked for usage in its stream."""
    output_limit_tokens: int | None
    """The one output limit, whatever its alias; None where the caller gave none."""
    pinned_endpoint: str | None = None
    """The only endpoint that can continue this (`previous_response_id`)."""

    @property
    def adds_usage(self) -> bool:
        """Whether we ask the engine for usage that the caller did not ask for, and take it out of the stream again."""
        return self.is_stream and not self.wants_usage and self.dialect in STREAMS_WITH_USAGE_OPTION

    def body_for(self, served_model: str, *, asks_usage: bool) -> bytes:
        """Return the body for an endpoint: untouched bytes wherever nothing must change.

        `asks_usage`: put `stream_options.include_usage` in, where the caller left it out.
        """
        asks_usage = asks_usage and self.adds_usage
        if served_model == self.requested_model:
            if not asks_usage:
                return self.body
            if "stream_options" not in self.fields:
                return USAGE_OPTION + self.body.lstrip()[1:]
        fields = dict(self.fields)
        fields["model"] = msgspec.Raw(msgspec.json.encode(served_model))
        if asks_usage:
            given = fields.get("stream_options", b"null")
            options: dict[str, msgspec.Raw] = msgspec.json.decode(given, type=dict[str, msgspec.Raw] | None) or {}
            options["include_usage"] = msgspec.Raw(b"true")
            fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
        return msgspec.json.encode(fields)
