"""How a server of OpenAI's API understands requests, as far as the API says it."""

from headrace.engines.contract import Dialect
from headrace.engines.dialects import ALL_PATHS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.openai.structured import write_constraint

DIALECT = Dialect(
    paths=ALL_PATHS,
    fields=field_table(),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
    structured=write_constraint,
)
"""What the server is is not known, so neither are its fields: all but a few dangerous ones follow `unknown_fields`."""
