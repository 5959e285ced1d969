"""Errors of servers of OpenAI's API in our words. Source: OpenAI's and Anthropic's answers to over-long prompts."""

import re

from headrace.engines.answers import context_too_long, read_error, translate
from headrace.engines.contract import EngineError

_TOO_LONG = (
    re.compile(
        r"maximum context length is (?P<context>\d+) tokens.{0,60}?(resulted in|requested|contains) (?P<prompt>\d+)",
        re.IGNORECASE,
    ),
    re.compile(r"prompt is too long: (?P<prompt>\d+) tokens > (?P<context>\d+)", re.IGNORECASE),
    re.compile(r"maximum context length( is (?P<context>\d+))?", re.IGNORECASE),
    re.compile(
        r"context (length|window|size)[^.]{0,40}exceed|exceed[^.]{0,40}context (length|window|size)", re.IGNORECASE
    ),
    re.compile(r"prompt is too long", re.IGNORECASE),
)


def translate_error(status: int, body: bytes) -> EngineError:
    """See `contract.Driver`."""
    answer = read_error(status, body)
    error = translate(answer, too_long=_TOO_LONG, engine="the server")
    if answer.fields.get("code") == "context_length_exceeded" and not error.figures:
        return context_too_long(None, None, param=answer.param, engine_says=answer.message)
    return error
