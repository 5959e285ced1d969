"""Structured output in SGLang's words. Source: sglang/srt/entrypoints/{openai,anthropic}/protocol.py, 0.5.23."""

from headrace.domain.request import ApiDialect
from headrace.engines.grammar import as_regex, portable
from headrace.engines.structured_output import (
    Constraint,
    ConstraintKind,
    Written,
    output_config,
    refuse_options,
    response_format,
    text_format,
)


def write_constraint(constraint: Constraint, api: ApiDialect) -> Written:
    """See `Dialect.structured`. At /v1/responses and /v1/messages SGLang knows JSON only."""
    refuse_options(constraint)
    if api is ApiDialect.MESSAGES:
        return output_config(constraint)
    if api is ApiDialect.RESPONSES:
        return text_format(constraint)
    match constraint.kind:
        case ConstraintKind.REGEX:
            return {"regex": constraint.text}
        case ConstraintKind.CHOICE:
            return {"regex": as_regex(constraint.choices)}
        case ConstraintKind.GRAMMAR:
            return {"ebnf": constraint.text if constraint.field == "ebnf" else portable(constraint)}
        case _:
            return response_format(constraint)
