"""Structured output in trtllm-serve's words.

Source: tensorrt_llm/serve/openai_protocol.py@0076e93 of NVIDIA/TensorRT-LLM, class ResponseFormat.
"""

from headrace.domain.request import ApiDialect
from headrace.engines.grammar import as_regex, portable
from headrace.engines.structured_output import (
    Constraint,
    ConstraintKind,
    Written,
    refuse_options,
    response_format,
    text_format,
)


def write_constraint(constraint: Constraint, api: ApiDialect) -> Written:
    """See `Dialect.structured`. All kinds are types of `response_format`; at /v1/responses there is JSON only."""
    refuse_options(constraint)
    if api is ApiDialect.RESPONSES:
        return text_format(constraint)
    match constraint.kind:
        case ConstraintKind.REGEX:
            return {"response_format": {"type": "regex", "regex": constraint.text}}
        case ConstraintKind.CHOICE:
            return {"response_format": {"type": "regex", "regex": as_regex(constraint.choices)}}
        case ConstraintKind.GRAMMAR:
            grammar = constraint.text if constraint.field == "response_format" else portable(constraint)
            return {"response_format": {"type": "ebnf", "ebnf": grammar}}
        case _:
            return response_format(constraint)
