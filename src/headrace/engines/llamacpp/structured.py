"""Structured output in llama.cpp's words. Source: answers of xllamacpp 2026.10.11549 (b11549), each shown by a test in
tests/contract/test_llamacpp_dialect.py: it ignores `response_format` at /v1/completions, `text.format` at
/v1/responses, and every constraint at /v1/messages.
"""

from headrace.domain.request import ApiDialect
from headrace.engines.grammar import as_grammar, portable
from headrace.engines.structured_output import (
    CannotSayError,
    Constraint,
    ConstraintKind,
    Written,
    refuse_options,
    response_format,
)


def write_constraint(constraint: Constraint, api: ApiDialect) -> Written:
    """See `Dialect.structured`."""
    refuse_options(constraint)
    if api is ApiDialect.MESSAGES:
        raise CannotSayError("holds output to nothing at /v1/messages")
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT if api is ApiDialect.COMPLETIONS:
            return {"json_schema": {"type": "object"}}
        case ConstraintKind.JSON_SCHEMA if api is ApiDialect.COMPLETIONS:
            return {"json_schema": constraint.schema}
        case ConstraintKind.JSON_OBJECT | ConstraintKind.JSON_SCHEMA:
            return response_format(constraint)
        case ConstraintKind.CHOICE:
            return {"grammar": as_grammar(constraint.choices)}
        case ConstraintKind.GRAMMAR:
            return {"grammar": constraint.text if constraint.field == "grammar" else portable(constraint)}
        case _:
            raise CannotSayError(f"cannot hold output to {constraint.kind.value}")
