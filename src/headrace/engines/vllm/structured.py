"""Structured output in vLLM's words. Source: vllm/sampling_params.py, vllm/entrypoints/{openai,anthropic}, 0.33.0."""

from headrace.domain.request import ApiDialect
from headrace.engines.grammar import portable
from headrace.engines.structured_output import (
    Constraint,
    ConstraintKind,
    Written,
    output_config,
    response_format,
    text_format,
)

OWN_GRAMMARS = frozenset({"structured_outputs", "guided_grammar"})
"""Fields whose grammars are vLLM's own: Lark or EBNF, told apart by vLLM."""


def write_constraint(constraint: Constraint, api: ApiDialect) -> Written:
    """See `Dialect.structured`. vLLM ignores fields that it does not know, its own older `guided_*` among them."""
    if api is ApiDialect.MESSAGES:
        return output_config(constraint)
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT | ConstraintKind.JSON_SCHEMA:
            return text_format(constraint) if api is ApiDialect.RESPONSES else response_format(constraint)
        case ConstraintKind.REGEX:
            return {"structured_outputs": {"regex": constraint.text}}
        case ConstraintKind.CHOICE:
            return {"structured_outputs": {"choice": constraint.choices}}
        case ConstraintKind.GRAMMAR:
            grammar = constraint.text if constraint.field in OWN_GRAMMARS else portable(constraint)
            return {"structured_outputs": {"grammar": grammar}}
        case ConstraintKind.STRUCTURAL_TAG if api is ApiDialect.RESPONSES:
            return {"structured_outputs": {"structural_tag": bytes(constraint.tag).decode()}}
        case ConstraintKind.STRUCTURAL_TAG:
            return response_format(constraint)
