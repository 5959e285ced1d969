"""The body of an attempt that goes on with what the caller has, by the engine's continuation row.

Counterpart: `engines/continuation.py` (what is proved of each engine), `core/resumable.py` (which fields survive).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.continuation import ContinuationRow, Trailing
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam

Fields = Mapping[str, msgspec.Raw]
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_ids = msgspec.json.Decoder(list[int]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_stops = msgspec.json.Decoder(str | list[str] | None).decode
_ASSISTANT = msgspec.Raw(b'"assistant"')
_NULL = msgspec.Raw(b"null")
_TRUE = msgspec.Raw(b"true")
LIMITS = ("max_tokens", "max_completion_tokens", "n_predict")


class CannotResumeError(Exception):
    """The stream cannot go on at this engine, or anywhere."""

    def __init__(self, bar: ResumeBar) -> None:
        super().__init__(bar.value)
        self.bar = bar


def check_row(row: ContinuationRow, api: ApiDialect) -> None:
    """Look whether an engine is proved to go on with answers of this API. Raises: CannotResumeError."""
    if api not in row.apis or row.stream_echoes.proved_by is None:
        raise CannotResumeError(ResumeBar.ENGINE)
    if row.counts_new_tokens.proved_by is None or row.stops_in_new_text.proved_by is None:
        raise CannotResumeError(ResumeBar.ENGINE)


def output_left(request: InferenceRequest, had: Had, row: ContinuationRow) -> int | None:
    """Output tokens that the answer may still have; None: the caller set no limit."""
    limit = request.output_limit_tokens
    if limit is None and request.dialect is ApiDialect.COMPLETIONS:
        limit = row.default_completion_tokens
    return None if limit is None else limit - had.tokens


def resuming_body(body: bytes, request: InferenceRequest, had: Had, row: ContinuationRow) -> bytes:
    """`body` as the endpoint would get it at first, made to go on after what the caller has.

    Raises: CannotResumeError.
    """
    text = had.text.removesuffix(said_again(request, had, row))
    try:
        fields: dict[str, Any] = dict(_decode_fields(body))
    except UNDECODABLE as error:  # nested as deeply as a body may be, and here is less room for it
        raise CannotResumeError(ResumeBar.FIELD) from error
    if text and request.dialect is ApiDialect.COMPLETIONS:
        fields["prompt"] = _begun_prompt(request.fields, had)
    elif text:
        fields["messages"] = _begun_messages(request.fields, text, row)
        if request.dialect is ApiDialect.CHAT_COMPLETIONS:
            fields |= row.asked_with
    left = output_left(request, had, row)
    if left is not None and had.tokens:
        for name in [name for name in LIMITS if name in fields and fields[name] != _NULL] or ["max_tokens"]:
            fields[name] = left
    return msgspec.json.encode(fields)


def seam_for(request: InferenceRequest, had: Had, row: ContinuationRow) -> Seam:
    """The seam at which the new words are joined to what the caller has."""
    expected = had.text if row.stream_echoes.holds else said_again(request, had, row)
    return Seam(had.text, expected=expected, stops=stop_texts(request.fields))


def said_again(request: InferenceRequest, had: Had, row: ContinuationRow) -> str:
    """White space at the end, which is left to the engine to say again where its templates may trim it."""
    if request.dialect is ApiDialect.COMPLETIONS or row.keeps_white_space.holds:
        return ""
    return had.text[len(had.text.rstrip()) :]


def stop_texts(fields: Fields) -> tuple[str, ...]:
    """The caller's stop texts."""
    try:
        stops = _decode_stops(fields.get("stop") or fields.get("stop_sequences") or _NULL)
    except UNDECODABLE:
        return ()
    return (stops,) if isinstance(stops, str) else tuple(stop for stop in stops or () if stop)


def _begun_prompt(fields: Fields, had: Had) -> str | list[int]:
    raw = fields.get("prompt", _NULL)
    try:
        if bytes(raw).startswith(b"["):
            items = _decode_list(raw)
            if len(items) > 1 and had.token_ids is not None:
                return [*_decode_ids(raw), *had.token_ids]
            [raw] = items
        return _decode_text(raw) + had.text
    except (*UNDECODABLE, ValueError):  # several prompts, or token ids where no engine tells those of a text
        raise CannotResumeError(ResumeBar.MESSAGES) from None


def _begun_messages(fields: Fields, text: str, row: ContinuationRow) -> list[Any]:
    try:
        messages: list[Any] = list(_decode_list(fields.get("messages", _NULL)))
        last = _decode_fields(messages[-1])
        if last.get("role") != _ASSISTANT:
            return [*messages, {"role": "assistant", "content": text}]
        is_continued = fields.get("continue_final_message", _NULL) == _TRUE or row.trailing is Trailing.CONTINUED
        if not is_continued or last.get("tool_calls", _NULL) != _NULL:
            raise CannotResumeError(ResumeBar.MESSAGES)
        return [*messages[:-1], {**last, "content": _decode_text(last.get("content", _NULL)) + text}]
    except (*UNDECODABLE, IndexError):
        raise CannotResumeError(ResumeBar.MESSAGES) from None
