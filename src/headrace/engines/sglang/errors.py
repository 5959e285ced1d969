"""SGLang's errors in our words. Source: SGLang 0.5.23 (PyPI wheel), run on CPU."""

import re

from headrace.engines.answers import engine_fault, read_error, translate
from headrace.engines.contract import EngineError

_TOO_LONG = (
    re.compile(
        r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<context>\d+)", re.IGNORECASE
    ),
    re.compile(
        r"maximum context length of (?P<context>\d+) tokens\..{0,80}: (?P<prompt>\d+) tokens from the input messages",
        re.IGNORECASE,
    ),
    re.compile(
        r"Input length \((?P<prompt>\d+) tokens\) exceeds the maximum allowed length \((?P<context>\d+)", re.IGNORECASE
    ),
    re.compile(
        r"max_completion_tokens is too large: \d+\.\s*This model supports at most (?P<context>\d+) completion",
        re.IGNORECASE,
    ),
    re.compile(r"exceeds the model's (maximum )?context length( of (?P<context>\d+))?", re.IGNORECASE),
    re.compile(r"longer than the model's context length", re.IGNORECASE),
)
"""Source: sglang/srt/managers/tokenizer_manager.py and sglang/srt/managers/utils.py."""


def translate_error(status: int, body: bytes) -> EngineError:
    """See `contract.Driver`. A failed transfer between prefill and decode is the engines' fault at any status."""
    answer = read_error(status, body)
    if "KVTransferError" in answer.message or "KVTransferError" in answer.type:
        return engine_fault(f"SGLang: {answer.message}")
    return translate(answer, too_long=_TOO_LONG, engine="SGLang")
