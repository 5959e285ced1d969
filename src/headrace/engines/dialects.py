"""Field tables shared by drivers: what several engines understand, so that each driver lists only its own."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headrace.engines.contract import FieldRule

GENERATION_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""What every engine of OpenAI's API serves."""

ALL_PATHS = GENERATION_PATHS | {"/v1/embeddings", "/v1/responses", "/v1/messages"}
"""What headrace can pass on. Source: the routes of vLLM 0.32.0, SGLang 0.5.23 and llama.cpp b11549, asked or listed."""

OPENAI_OUTPUT_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""Output limits of the chat, completions and responses APIs. Source: OpenAI's API reference."""

HF_SAMPLING_FIELDS = (
    "add_generation_prompt",
    "add_special_tokens",
    "allowed_token_ids",
    "continue_final_message",
    "early_stopping",
    "ignore_eos",
    "include_stop_str_in_output",
    "length_penalty",
    "min_p",
    "min_tokens",
    "repetition_penalty",
    "return_token_ids",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "top_k",
    "truncate_prompt_tokens",
    "use_beam_search",
)
"""Sampling and templating fields with the same meaning in vLLM, SGLang and TensorRT-LLM where they exist."""


def field_table(
    *, safe: Iterable[str] = (), gated: Iterable[str] = (), owned: Iterable[str] = ()
) -> Mapping[str, FieldRule]:
    """Join three lists to the table of a dialect; the stricter rule wins where a name is in two."""
    table = dict.fromkeys(safe, FieldRule.SAFE)
    table |= dict.fromkeys(gated, FieldRule.GATED)
    table |= dict.fromkeys(owned, FieldRule.OWNED)
    return MappingProxyType(table)
