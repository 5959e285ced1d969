"""Reading engines' error answers: the shapes they share, and the parts of translation that do not differ.

Nothing here raises on foreign bytes: what cannot be read is an engine's fault, and says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from headrace.domain.errors import ErrorCode
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.contract import EngineError

SHOWN_CHARACTERS = 500
"""Of an engine's message at most so many are passed on: validation errors can repeat a whole prompt."""

LONGEST_NUMBER = 12
"""Digits of a token count that is believed: a hostile message could hold any number of them."""

CALLER_STATUSES: Mapping[int, ErrorCode] = {
    400: ErrorCode.INVALID_REQUEST,
    413: ErrorCode.BODY_TOO_LARGE,
    415: ErrorCode.INVALID_REQUEST,
    422: ErrorCode.INVALID_REQUEST,
    501: ErrorCode.UNSUPPORTED_PARAMETER,
}
"""Statuses with which an engine blames the caller; 501 says that it was not built for what is asked. Not 401 and 403,
where it rejects the credentials that headrace shows: those are the deployment's fault. 404: see `translate`."""

NO_PATH = re.compile(
    r"Not Found|Method Not Allowed|File Not Found|404 page not found|Invalid URL \((GET|POST|PUT) .*\)"
)
"""All that a server says that has no such path: FastAPI of vLLM, SGLang and trtllm-serve; llama.cpp; Go's servers, such
as Ollama; OpenAI. A proxy that knows nothing of what is behind it says it in pages or words of its own."""
_NO_ANSWER = re.compile(r"(previous )?response with id .{1,200} not found", re.IGNORECASE)
"""Source: vllm/entrypoints/openai/responses/serving.py, recorded; SGLang and trtllm-serve have the same words."""
_NO_MODEL = re.compile(r"model .{1,200} (does not exist|not found)", re.IGNORECASE)


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

    1. A message that one of `too_long` finds is CONTEXT_TOO_LONG, whatever its status, with the numbers of the groups
       `prompt` and `context` where the pattern has them.
    2. A status of CALLER_STATUSES is the caller's fault, with the engine's message.
    3. 404 and 405 have four meanings. No such path: the caller asked for an API that this model's engine does not have
       (an embedding of a chat model); any caller could say so at will, so that it is no engine's fault. No such earlier
       answer: likewise, the engine has forgotten it. No such model: the operator has declared another name than the
       engine has, and it is of no use until one of the two changes. Anything else: 5.
    4. 429 and 503 mean that this engine is loading, full or leaving: another may do it.
    5. Everything else is the engine's fault.
    """
    message = answer.message or f"{engine} answered HTTP {answer.status} without a message"
    for pattern in too_long:
        if found := pattern.search(message):
            groups = found.groupdict()
            prompt, context = _number(groups.get("prompt")), _number(groups.get("context"))
            return context_too_long(prompt, context, param=answer.param, engine_says=message)
    if code := CALLER_STATUSES.get(answer.status):
        return EngineError(code=code, message=message, param=answer.param)
    if answer.status in (404, 405):
        return _not_found(answer, message, engine)
    return engine_fault(f"{engine}: {message}")


def _not_found(answer: ErrorAnswer, message: str, engine: str) -> EngineError:
    """Case 3 of `translate`."""
    if NO_PATH.fullmatch(answer.message):
        return EngineError(
            code=ErrorCode.ROUTE_NOT_FOUND, message=f"{engine} does not have this API for this model", param="model"
        )
    if _NO_ANSWER.search(answer.message):
        message = "previous_response_id names an answer that its engine does not hold any more; send the whole input"
        return EngineError(code=ErrorCode.UNSUPPORTED_PARAMETER, message=message, param="previous_response_id")
    if answer.fields.get("code") == "model_not_found" or answer.param == "model" or _NO_MODEL.search(answer.message):
        message = f"{engine} has no model of the declared name: {message}"
        return EngineError(code=ErrorCode.ENGINE_REFUSED, message=message, is_out=True, is_unknown_model=True)
    return engine_fault(f"{engine}: {message}")


def context_too_long(
    prompt_tokens: int | None, context_tokens: int | None, *, param: str | None = None, engine_says: str = ""
) -> EngineError:
    """The one error for whatever does not fit: both numbers in the message and as figures, as far as known."""
    known = {"prompt_tokens": prompt_tokens, "context_tokens": context_tokens}
    if prompt_tokens is None or context_tokens is None:
        message = engine_says or "the prompt is longer than the model's context"
    elif prompt_tokens < context_tokens:
        message = (
            f"the prompt has {prompt_tokens} tokens, and with the output asked for it does not fit the model's context "
            f"of {context_tokens}: shorten the prompt, or ask for less output"
        )
    else:
        message = (
            f"the prompt has {prompt_tokens} tokens, and the model's context holds {context_tokens}: shorten the prompt"
        )
    return EngineError(
        code=ErrorCode.CONTEXT_TOO_LONG,
        message=message,
        param=param,
        figures={name: number for name, number in known.items() if number is not None},
    )


def engine_fault(message: str, *, retry_after_s: float | None = None, is_out: bool = False) -> EngineError:
    return EngineError(code=ErrorCode.ENGINE_REFUSED, message=message, retry_after_s=retry_after_s, is_out=is_out)


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
    except UNDECODABLE:
        return body[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")
    if isinstance(decoded, Mapping):
        members = cast("Mapping[str, Any]", decoded)
        return members.get("error") or members
    return _as_text(decoded)


def _as_text(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")[: 4 * SHOWN_CHARACTERS]


def _number(text: str | None) -> int | None:
    return None if text is None or len(text) > LONGEST_NUMBER else int(text)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
