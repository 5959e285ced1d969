"""One inference request, as the gateway understands it: read once at entry, edited only where it must be."""

from enum import StrEnum

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.undecodable import UNDECODABLE

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def members_of(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """Cut a part of a body that was read at entry already; nested as deeply as it may be, there may be less room now.

    Raises: RequestError INVALID_REQUEST.
    """
    try:
        return _decode_members(text)
    except UNDECODABLE as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the body is nested too deeply") from error


class ApiDialect(StrEnum):
    """Which public API a request speaks. The value is what logs and the ledger show."""

    CHAT_COMPLETIONS = "chat.completions"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    RESPONSES = "responses"
    MESSAGES = "messages"


class RequestClass(StrEnum):
    """How urgent a request is: its band in the queue. The value is what callers and headrace.yaml write."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    OFFLINE = "offline"


USAGE_OPTION = b'{"stream_options":{"include_usage":true},'
STREAMS_WITH_USAGE_OPTION = frozenset({ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS})
"""Dialects whose streams report usage only when asked. Source: OpenAI API reference, `stream_options`."""


OUTPUT_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
"""Names of the one output limit, as any dialect or engine has them; `tests/unit/domain` holds them against the
drivers."""


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines of one pool are sent in place of the caller's own words."""

    dropped: frozenset[str] = frozenset()
    """Top-level fields that go."""
    added: dict[str, msgspec.Raw] = {}
    """Fields that come, or replace the caller's."""
    echo: str | None = None
    """What the engine repeats at the beginning of a whole answer, and the caller must not get."""


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
    estimated_input_tokens: int = 0
    """Guessed from the input's length and what the model's engines have counted so far (`entry/token_estimate.py`)."""
    prompt_bytes: int = 0
    """Length of the input, from which that was guessed."""
    request_class: RequestClass = RequestClass.STANDARD
    tenant: str = ""
    """Who asks, for routing: pools may be for some tenants only, and prompts of others kept apart."""
    placing: object | None = None
    """What routing keeps of the request between choices; set by it, and for nobody else to read."""
    choice: object | None = None
    """Where the caller's `model` stands for several: the choice made among them, as routing keeps it. None: it does
    not."""
    split_pool: str | None = None
    """Where its model's traffic is split by weight: the pool that it goes to, at every look; empty: to any."""
    regions: frozenset[str] | None = None
    """Regions whose pools may serve it, as its caller's levels allow; None is all."""
    pinned_endpoint: str | None = None
    """The only endpoint that can continue this (`previous_response_id`)."""
    rewrites: dict[str, Rewrite] | None = None
    """By pool, for the few requests that need it: the pools that can do what is asked, and in which words. None: all
    can, and the body stays as it is."""

    @property
    def adds_usage(self) -> bool:
        """Whether we ask the engine for usage that the caller did not ask for, and take it out of the stream again."""
        return self.is_stream and not self.wants_usage and self.dialect in STREAMS_WITH_USAGE_OPTION

    def with_output_limit(self, output_tokens: int) -> "InferenceRequest":
        """A copy that asks for at most so many output tokens, under the name that the caller used for it or, where it
        gave none, the dialect's own.
        """
        names = [name for name in OUTPUT_LIMIT_FIELDS if name in self.fields]
        own = "max_output_tokens" if self.dialect is ApiDialect.RESPONSES else "max_tokens"
        limit = msgspec.Raw(b"%d" % output_tokens)
        if not names:
            body = b'{"%b":%b,%b' % (own.encode(), limit, self.body.lstrip()[1:])
        else:
            body = msgspec.json.encode(self.fields | dict.fromkeys(names, limit))
        return msgspec.structs.replace(
            self,
            body=body,
            fields=self.fields | dict.fromkeys(names or [own], limit),
            output_limit_tokens=output_tokens,
        )

    def for_model(self, model: str) -> "InferenceRequest":
        """A copy that asks for another model."""
        named = msgspec.Raw(msgspec.json.encode(model))
        fields = self.fields | {"model": named}
        body = msgspec.json.encode(fields)
        return msgspec.structs.replace(
            self, requested_model=model, body=body, fields=fields, choice=None, placing=None, split_pool=None
        )

    def become(self, model: str, input_tokens: int) -> None:
        """Ask for another model from now on, in place: all who hold the request are to see it. For routing, where the
        caller's own word stands for several.
        """
        self.requested_model, self.estimated_input_tokens = model, input_tokens
        self.placing = self.split_pool = None
        self.fields = self.fields | {"model": msgspec.Raw(msgspec.json.encode(model))}
        self.body = msgspec.json.encode(self.fields)

    def body_for(self, served_model: str, *, asks_usage: bool) -> bytes:
        """Return the body for an endpoint: untouched bytes wherever nothing must change.

        `asks_usage`: put `stream_options.include_usage` in, where the caller left it out. Raises: as `members_of`.
        """
        asks_usage = asks_usage and self.is_stream and self.adds_usage
        if served_model == self.requested_model:
            if not asks_usage:
                return self.body
            if "stream_options" not in self.fields:
                return USAGE_OPTION + self.body.lstrip()[1:]
        fields = dict(self.fields)
        fields["model"] = msgspec.Raw(msgspec.json.encode(served_model))
        if asks_usage:
            given = fields.get("stream_options", b"null")
            options = members_of(given) or {}
            options["include_usage"] = msgspec.Raw(b"true")
            fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
        return msgspec.json.encode(fields)

    def rewritten_body(
        self, served_model: str, *, asks_usage: bool, rewrite: Rewrite | None, salt: str | None
    ) -> bytes:
        """`body_for` for the rare request that is put into an engine's own words, or into a tenant's part of its cache.

        `salt`: put it in as `cache_salt`.
        """
        body = self.body_for(served_model, asks_usage=asks_usage)
        if rewrite is None and salt is None:
            return body
        fields = members_of(body) or {}
        if rewrite is not None:
            fields = {name: value for name, value in fields.items() if name not in rewrite.dropped} | rewrite.added
        if salt is not None:
            fields["cache_salt"] = msgspec.Raw(msgspec.json.encode(salt))
        return msgspec.json.encode(fields)
