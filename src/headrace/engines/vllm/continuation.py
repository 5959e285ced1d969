"""vLLM's continuation row. Source: vllm/entrypoints/openai/chat_completion/protocol.py, 0.33.0."""

from types import MappingProxyType

from headrace.domain.request import ApiDialect
from headrace.engines.continuation import ContinuationRow, Fact, Tokenizing, Trailing

_TESTS = "tests/real/test_continuation_real.py::"
_PLAIN = MappingProxyType({"add_special_tokens": False})

CONTINUATION = ContinuationRow(
    apis=frozenset({ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS}),
    asked_with=MappingProxyType({"continue_final_message": True, "add_generation_prompt": False}),
    trailing=Trailing.NEW_TURN,
    whole_echoes=Fact(holds=False, proved_by=_TESTS + "test_a_whole_answer_has_the_new_words_alone"),
    stream_echoes=Fact(holds=False, proved_by=_TESTS + "test_a_stream_has_the_new_words_alone"),
    grammar_replays=Fact(holds=False, proved_by=_TESTS + "test_a_schema_begins_anew_in_the_new_words"),
    keeps_reasoning=Fact(holds=False),
    counts_new_tokens=Fact(holds=True, proved_by=_TESTS + "test_new_tokens_alone_are_counted"),
    stops_in_new_text=Fact(holds=True, proved_by=_TESTS + "test_stop_strings_are_looked_for_in_the_new_words"),
    default_completion_tokens=16,
    tokenizing=Tokenizing(path="/tokenize", text_field="prompt", flags=_PLAIN),
)
"""At /v1/messages and /v1/responses vLLM has no such field, and begins a new turn."""
