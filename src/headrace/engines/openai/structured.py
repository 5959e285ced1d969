"""Structured output of the public APIs, for servers of which nothing else is known."""

from headrace.domain.request import ApiDialect
from headrace.engines.structured_output import (
    CannotSayError,
    Constraint,
    ConstraintKind,
    Written,
    output_config,
    refuse_options,
    response_format,
    text_format,
)


def write_constraint(constraint: Constraint, api: ApiDialect) -> Written:
    """See `Dialect.structured`. Source: OpenAI's and Anthropic's API references."""
    refuse_options(constraint)
    if constraint.kind not in (ConstraintKind.JSON_OBJECT, ConstraintKind.JSON_SCHEMA):
        raise CannotSayError(f"is not known to hold output to {constraint.kind.value}; declare the pool's engine")
    if api is ApiDialect.CHAT_COMPLETIONS:
        return response_format(constraint)
    if api is ApiDialect.RESPONSES:
        return text_format(constraint)
    if api is ApiDialect.MESSAGES:
        return output_config(constraint)
    raise CannotSayError("of the public API holds completions to nothing")
