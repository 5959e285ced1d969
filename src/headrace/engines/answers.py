"""Reading engines' error answers: the shapes they share, and the parts of translation that do not differ.

Nothing here raises on foreign bytes: what cannot be read is an engine's fault, and says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from headrace.domain.errors import ErrorCode
from headrace.engines.contract import EngineError

SHOWN_CHARACTERS = 500
"""Of an engine's message at most so many are passed on: validation errors can repeat a whole prompt."""

CALLER_STATUSES: Mapping[int, ErrorCode] = {
    400: ErrorCode.INVALID_REQUEST,
    413: ErrorCode.BODY_TOO_LARGE,
    415: ErrorCode.INVALID_REQUEST,
    422: ErrorCode.INVALID_REQUEST,
}
"""Statuses with which an engine blames the caller. Not 401 and 403, where it rejects the credentials that headrace
shows, nor 404, where it lacks a model or path that headrace chose: those are the deployment's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """An engine's error answer, whatever its shape."""

    status: int
    """Of the answer, or the one that its `code` gives."""
    message: str
    type: str
    """`error.type`, or empty."""
    param: str | None
    fields: Mapping[str, Any]
    """All members of the innermost error object."""

    def number(self, name: str) -> int | None:
        found = self.fields.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else None


def read_error(status: int, body: bytes) -> ErrorAnswer:
    """Read `{"error": {...}}`, `{"error": "text"}`, a flat `{"message": ...}`, `{"detail": ...}` or plain text.

    A `code` that is an HTTP status wins over `status`, since events within a stream carry only that.
    """
    error = _innermost(body)
    if isinstance(error, Mapping):
        members = cast("Mapping[str, Any]", error)
        message = members.get("message") or members.get("detail") or ""
        code = members.get("code")
        is_status = isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600
        return ErrorAnswer(
            status=cast("int", code) if is_status else status,
            message=shorten(message if isinstance(message, str) else _as_text(message)),
            type=_text(members.get("type")),
            param=_text(members.get("param")) or None,
            fields=members,
        )
    text = error if isinstance(error, str) else ""
    return ErrorAnswer(status=status, message=shorten(text), type="", param=None, fields={})


def translate(answer: ErrorAnswer, *, too_long: Sequence[re.Pattern[str]], engine: str) -> EngineError:
    """Judge an answer by the rules all engines share.

    1. A message that says the prompt is too long is CONTEXT_TOO_LONG, whatever its status.
    2. A status of CALLER_STATUSES is the caller's fault, with the engine's message.
    3. 429 and 503 mean that this engine is loading, full or leaving: another may do it.
    4. Everything else is the engine's fault.
    """
    message = answer.message or f"{engine} answered HTTP {answer.status} without a message"
    if any(pattern.search(message) for pattern in too_long):
        return EngineError(code=ErrorCode.CONTEXT_TOO_LONG, message=message, param=answer.param)
    if code := CALLER_STATUSES.get(answer.status):
        return EngineError(code=code, message=message, param=answer.param)
    return engine_fault(f"{engine}: {message}")


def engine_fault(message: str, *, retry_after_s: float | None = None) -> EngineError:
    return EngineError(code=ErrorCode.ENGINE_REFUSED, message=message, retry_after_s=retry_after_s)


SOURCE_PLACE = '\n\n  File "'
"""Begins the path and line of its source that SGLang 0.5.23 adds to validation errors: no caller's business."""


def shorten(text: str) -> str:
    """One line of at most SHOWN_CHARACTERS, without control characters, and without a place in the engine's source."""
    text = text.partition(SOURCE_PLACE)[0]
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * SHOWN_CHARACTERS]).split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"


def _innermost(body: bytes) -> object:
    try:
        decoded: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return body[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")
    if isinstance(decoded, Mapping):
        members = cast("Mapping[str, Any]", decoded)
        return members.get("error") or members
    return _as_text(decoded)


def _as_text(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")[: 4 * SHOWN_CHARACTERS]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
