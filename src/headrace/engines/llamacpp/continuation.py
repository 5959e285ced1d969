"""llama.cpp's continuation row. Source: answers of xllamacpp 2026.10.11549 (b11549), shown by the tests it names."""

from types import MappingProxyType

from headrace.domain.request import ApiDialect
from headrace.engines.continuation import ContinuationRow, Fact, Tokenizing, Trailing

_TESTS = "tests/contract/test_llamacpp_dialect.py::"

CONTINUATION = ContinuationRow(
    apis=frozenset({ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS, ApiDialect.MESSAGES, ApiDialect.RESPONSES}),
    asked_with=MappingProxyType({"continue_final_message": True, "add_generation_prompt": False}),
    trailing=Trailing.CONTINUED,
    whole_echoes=Fact(holds=True, proved_by=_TESTS + "test_a_whole_continuation_repeats_what_was_there"),
    stream_echoes=Fact(holds=False, proved_by=_TESTS + "test_a_streamed_continuation_holds_new_words_alone"),
    grammar_replays=Fact(holds=True, proved_by=_TESTS + "test_a_schema_holds_for_old_and_new_words_together"),
    keeps_reasoning=Fact(holds=False),
    counts_new_tokens=Fact(holds=True, proved_by=_TESTS + "test_a_continuation_counts_new_tokens_alone"),
    stops_in_new_text=Fact(holds=True, proved_by=_TESTS + "test_stop_strings_are_looked_for_in_new_words_alone"),
    keeps_white_space=Fact(holds=True, proved_by=_TESTS + "test_white_space_before_the_seam_survives"),
    tokenizing=Tokenizing(path="/tokenize", text_field="content", flags=MappingProxyType({"add_special": False})),
)
"""It goes on with a last message of the assistant's asked or not, on all three chat APIs."""
