"""trtllm-serve's errors in our words. Read from the sources of NVIDIA/TensorRT-LLM; never run by us.

It answers every exception, its own faults too, with status 400 (tensorrt_llm/serve/openai_server.py@0005772), so the
message decides whose fault it was.
"""

import re

from headrace.engines.answers import engine_fault, read_error, translate
from headrace.engines.contract import EngineError

_TOO_LONG = (
    re.compile(
        r"prompt length \((?P<prompt>\d+)(?:\.0)?\).{0,60}"
        r"should not exceed max_(?:num_tokens|seq_len) \((?P<context>\d+)"
    ),
    re.compile(r"max_seq_len \((?P<context>\d+)\) - `splited_prompt_len` \((?P<prompt>\d+)"),
    re.compile(r"length \((?P<prompt>\d+)\) is greater than max_seq_len \((?P<context>\d+)"),
    re.compile(r"should not exceed max_(num_tokens|seq_len)", re.IGNORECASE),
    re.compile(r"exceeds? (the )?(max_seq_len|max_input_len|max_num_tokens)", re.IGNORECASE),
)
"""Source: tensorrt_llm/llmapi/llm.py `_check_arguments`, tensorrt_llm/executor/base_worker.py `_deduce_max_tokens`."""

_SERVER_FAULT = re.compile(
    r"cuda|nccl|cublas|out of memory|executor|\bmpi\b|tensorrt[-_ ]?llm\]|assertion|runtimeerror|traceback|"
    r"unavailable|shut(ting)? ?down|timed? ?out|kv ?cache|connection|broken pipe|ucx|nixl|internal error",
    re.IGNORECASE,
)
"""Words that no complaint about a request holds: only these are taken for its own fault. The other way round, taking
unknown ones for its fault, would re-send a request that ends engines (NVIDIA/TensorRT-LLM#6329) to one replica after
the other."""


def translate_error(status: int, body: bytes) -> EngineError:
    """See `contract.Driver`.

    Validation answers (`{"error": "text"}`) repeat what the caller wrote, so their words prove nothing.
    """
    answer = read_error(status, body)
    is_validation = not answer.fields
    is_too_long = any(pattern.search(answer.message) for pattern in _TOO_LONG)
    if not is_validation and not is_too_long and _SERVER_FAULT.search(answer.message):
        return engine_fault(f"TensorRT-LLM: {answer.message}")
    return translate(answer, too_long=_TOO_LONG, engine="TensorRT-LLM")
