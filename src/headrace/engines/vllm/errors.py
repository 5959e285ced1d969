"""vLLM's errors in our words. Source: vLLM 0.33.0's wheel; 0.32.0 run on CPU."""

import re

from headrace.engines.answers import engine_fault, read_error, translate
from headrace.engines.contract import EngineError

_TOO_LONG = (
    re.compile(
        r"maximum context length is (?P<context>\d+) tokens\. However, your prompt contains (at least )?"
        r"(?P<prompt>\d+) input tokens",
        re.IGNORECASE,
    ),
    re.compile(
        r"maximum context length is (?P<context>\d+) tokens.{0,80}\((?P<prompt>\d+) in the (messages|prompt)",
        re.IGNORECASE,
    ),
    re.compile(r"prompt \(length (?P<prompt>\d+)\) is longer than the maximum model length of (?P<context>\d+)"),
    re.compile(r"max_(completion_)?tokens=\d+ cannot be greater than max_model_len=(?P<context>\d+)"),
    re.compile(r"maximum context length is (?P<context>\d+)", re.IGNORECASE),
    re.compile(r"longer than the maximum model length", re.IGNORECASE),
    re.compile(r"decoder prompt .* is longer than", re.IGNORECASE),
)
"""Source: vllm/renderers/params.py and vllm/v1/engine/input_processor.py; older versions in the second line."""

_LEAVING = re.compile(r"cannot schedule new futures after (interpreter )?shutdown", re.IGNORECASE)
"""What a vLLM that drains says to a new request, with status 500, while `/health` says 200. Seen on 0.32.0."""


def translate_error(status: int, body: bytes) -> EngineError:
    """See `contract.Driver`."""
    answer = read_error(status, body)
    if answer.status >= 500 and _LEAVING.search(answer.message):
        return engine_fault(f"vLLM is shutting down: {answer.message}", is_out=True)
    return translate(answer, too_long=_TOO_LONG, engine="vLLM")
