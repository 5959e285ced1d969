"""llama.cpp's errors in our words. Source: answers of xllamacpp 2026.10.11549 (tests/captures/llamacpp)."""

import re

from headrace.engines.answers import context_too_long, read_error, translate
from headrace.engines.contract import EngineError

_TOO_LONG = (
    re.compile(
        r"\((?P<prompt>\d+) tokens\) exceeds? the available context size \((?P<context>\d+) tokens", re.IGNORECASE
    ),
    re.compile(
        r"input \((?P<prompt>\d+) tokens\) is too large to process.{0,80}?size: (?P<context>\d+)", re.IGNORECASE
    ),
    re.compile(r"exceeds? the available context size", re.IGNORECASE),
    re.compile(r"input .{0,40}is too large to process", re.IGNORECASE),
)


def translate_error(status: int, body: bytes) -> EngineError:
    """See `contract.Driver`; `exceed_context_size_error` carries both numbers."""
    answer = read_error(status, body)
    if answer.type == "exceed_context_size_error":
        prompt_tokens, context_tokens = answer.number("n_prompt_tokens"), answer.number("n_ctx")
        return context_too_long(prompt_tokens, context_tokens, param=answer.param, engine_says=answer.message)
    return translate(answer, too_long=_TOO_LONG, engine="llama.cpp")
