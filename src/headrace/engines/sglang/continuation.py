"""SGLang's continuation row. Source: sglang/srt/entrypoints/openai/serving_chat.py, 0.5.23."""

from types import MappingProxyType

from headrace.domain.request import ApiDialect
from headrace.engines.continuation import ContinuationRow, Fact, Trailing

CONTINUATION = ContinuationRow(
    apis=frozenset({ApiDialect.CHAT_COMPLETIONS}),
    asked_with=MappingProxyType({"continue_final_message": True}),
    trailing=Trailing.FOR_THE_USERS,
    whole_echoes=Fact(holds=False),
    stream_echoes=Fact(holds=False),
    grammar_replays=Fact(holds=False),
    keeps_reasoning=Fact(holds=False),
    counts_new_tokens=Fact(holds=True),
    stops_in_new_text=Fact(holds=True),
)
"""`_handle_last_assistant_message`: what is not to be continued is put into the user's mouth."""
