"""vLLM's continuation row. Source: vllm/entrypoints/openai/chat_completion/protocol.py, 0.33.0."""

from types import MappingProxyType

from headrace.domain.request import ApiDialect
from headrace.engines.continuation import ContinuationRow, Fact, Trailing

CONTINUATION = ContinuationRow(
    apis=frozenset({ApiDialect.CHAT_COMPLETIONS}),
    asked_with=MappingProxyType({"continue_final_message": True, "add_generation_prompt": False}),
    trailing=Trailing.NEW_TURN,
    whole_echoes=Fact(holds=False),
    stream_echoes=Fact(holds=False),
    grammar_replays=Fact(holds=False),
    keeps_reasoning=Fact(holds=False),
    counts_new_tokens=Fact(holds=True),
    stops_in_new_text=Fact(holds=True),
)
"""At /v1/messages and /v1/responses vLLM has no such field, and begins a new turn."""
