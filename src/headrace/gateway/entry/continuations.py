"""Requests to go on with an answer that the caller began, by the engine's continuation row: what is not proved for the
engine is refused. Counterpart: `engines/continuation.py`.

1. `continue_final_message: true` asks for it; so does, at /v1/messages, a last message of the assistant's.
2. Elsewhere a last message of the assistant's asks for nothing: the engine does what it does (`Trailing`), and where
   that is to continue, the caller gets a continuation as from 1; where it would put the words into the user's mouth,
   the request is refused.
3. `add_generation_prompt` means something only beside 1: the row sets it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.continuation import ContinuationRow, Fact, Trailing
from headrace.engines.structured_output import CannotSayError

Fields = Mapping[str, msgspec.Raw]
FLAG, PROMPT_FLAG = "continue_final_message", "add_generation_prompt"
NULL = msgspec.Raw(b"null")
ASSISTANT = msgspec.Raw(b'"assistant"')
_decode_items = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_flag = msgspec.json.Decoder(bool | None).decode
_TOKEN_FIELDS = (
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "return_tokens",
    "n_probs",
    "return_tokens_as_token_ids",
)
_REASONING_FIELDS = ("reasoning_effort", "thinking", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A last message of the assistant's."""

    field: str
    """That asked for it, for messages."""
    is_asked: bool
    """Whether the caller asks to continue it, by flag or by the API."""
    given: frozenset[str]
    """Which of the two flags the caller sent."""
    prefix: str | None
    """Its text; None where it is not one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationWords:
    """What the engine is sent in place of the flags, and what it will repeat."""

    added: dict[str, object]
    dropped: frozenset[str]
    echo: str | None


def read_continuation(fields: Fields, api: ApiDialect) -> Continuation | None:
    """Return what is to be continued, or None. Raises: RequestError INVALID_REQUEST where the flags contradict."""
    given = frozenset(name for name in (FLAG, PROMPT_FLAG) if fields.get(name, NULL) != NULL)
    is_flagged = FLAG in given and _flag(fields, FLAG)
    if is_flagged and PROMPT_FLAG in given and _flag(fields, PROMPT_FLAG):
        raise _invalid(
            PROMPT_FLAG, f"{FLAG} and {PROMPT_FLAG} are both true; a message is continued or a new one begun"
        )
    last = _last_message(fields, api)
    if last is None:
        if is_flagged:
            raise _invalid(FLAG, f"{FLAG} needs a last message of role assistant")
        if PROMPT_FLAG in given and not _flag(fields, PROMPT_FLAG):
            raise _invalid(PROMPT_FLAG, f"{PROMPT_FLAG}: false goes with {FLAG}: true only")
        return None
    return Continuation(
        field=FLAG if is_flagged else "input" if api is ApiDialect.RESPONSES else "messages",
        is_asked=is_flagged or api is ApiDialect.MESSAGES,
        given=given,
        prefix=_prefix(last),
    )


def write_continuation(
    asked: Continuation,
    row: ContinuationRow,
    api: ApiDialect,
    fields: Fields,
    *,
    is_stream: bool,
    is_unproved_allowed: bool,
    is_constrained: bool,
) -> ContinuationWords:
    """Put it into an engine's words. Raises: CannotSayError with what the row lacks."""
    if not asked.is_asked and row.trailing is Trailing.FOR_THE_USERS:
        raise CannotSayError(
            f"would take the assistant's words for the user's; set {FLAG}: true or end with the user's"
        )
    if not asked.is_asked and row.trailing is not Trailing.CONTINUED:
        return ContinuationWords(added={}, dropped=asked.given, echo=None)
    if api not in row.apis:
        raise CannotSayError("cannot continue a message here")
    if not asked.prefix:
        raise CannotSayError("continues a message only where its content is one text, not empty")
    echoes = row.stream_echoes if is_stream else row.whole_echoes
    if not is_unproved_allowed:
        _need_proof(echoes, "that nothing is repeated")
        _check_wishes(row, fields)
    if is_constrained:
        raise CannotSayError(
            "holds old and new words together to a JSON schema, other engines the new ones alone; ask for one at a time"
            if row.grammar_replays.holds
            else "holds the new words alone to a constraint, other engines old and new together; ask for one at a time"
        )
    return ContinuationWords(
        added=dict(row.asked_with) if api is ApiDialect.CHAT_COMPLETIONS else {},
        dropped=asked.given,
        echo=asked.prefix if echoes.holds and not is_stream else None,
    )


def _check_wishes(row: ContinuationRow, fields: Fields) -> None:
    """Raises: CannotSayError where the caller wants what is not proved to survive a continuation."""
    if any(name in fields for name in _TOKEN_FIELDS):
        _need_proof(row.counts_new_tokens, "how tokens are counted")
    if "stop" in fields or "stop_sequences" in fields:
        _need_proof(row.stops_in_new_text, "where stop strings are looked for")
    if any(name in fields for name in _REASONING_FIELDS) or b'"enable_thinking"' in bytes(
        fields.get("chat_template_kwargs", msgspec.Raw(b""))
    ):
        _need_proof(row.keeps_reasoning, "what becomes of reasoning")


def _need_proof(fact: Fact, what: str) -> None:
    if fact.proved_by is None:
        raise CannotSayError(f"is not proved to continue messages well: {what} (allow_gated: [{FLAG}] lets it pass)")


def _last_message(fields: Fields, api: ApiDialect) -> dict[str, msgspec.Raw] | None:
    """The last message, where it is the assistant's."""
    raw = fields.get("input" if api is ApiDialect.RESPONSES else "messages")
    if raw is None:
        return None
    try:
        items = _decode_items(raw)
    except UNDECODABLE:
        return None  # a text, or no list of objects: the engine's to judge
    return items[-1] if items and items[-1].get("role") == ASSISTANT else None


def _prefix(message: dict[str, msgspec.Raw]) -> str | None:
    if message.get("tool_calls", NULL) != NULL:
        return None
    raw = message.get("content", NULL)
    try:
        if bytes(raw).startswith(b"["):
            parts = _decode_parts(raw)
            return _decode_text(parts[0]["text"]) if len(parts) == 1 and "text" in parts[0] else None
        return _decode_text(raw)
    except UNDECODABLE:
        return None


def _flag(fields: Fields, name: str) -> bool:
    try:
        return bool(_decode_flag(fields[name]))
    except UNDECODABLE:
        raise _invalid(name, f"field {name} must be true or false") from None


def _invalid(param: str, message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param=param)
