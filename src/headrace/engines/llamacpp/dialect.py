"""How llama.cpp understands requests. Source: ggml-org/llama.cpp, and answers of xllamacpp 2026.10.11549."""

from headrace.engines.contract import Dialect
from headrace.engines.dialects import ALL_PATHS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.llamacpp.continuation import CONTINUATION
from headrace.engines.llamacpp.structured import write_constraint

DIALECT = Dialect(
    paths=ALL_PATHS,
    fields=field_table(
        safe=(
            # sampling
            "adaptive_decay",
            "adaptive_target",
            "dry_allowed_length",
            "dry_base",
            "dry_multiplier",
            "dry_penalty_last_n",
            "dry_sequence_breakers",
            "dynatemp_exponent",
            "dynatemp_range",
            "ignore_eos",
            "min_keep",
            "min_p",
            "mirostat",
            "mirostat_eta",
            "mirostat_tau",
            "n_probs",
            "post_sampling_probs",
            "repeat_last_n",
            "repeat_penalty",
            "samplers",
            "t_max_predict_ms",
            "top_k",
            "top_n_sigma",
            "typical_p",
            "xtc_probability",
            "xtc_threshold",
            # prompt and answer
            "n_discard",
            "n_indent",
            "n_keep",
            "parse_tool_calls",
            "reasoning_budget_tokens",
            "reasoning_format",
            "return_tokens",
            "thinking_budget_tokens",
            "timings_per_token",
        ),
        gated=(
            "backend_sampling",
            "chat_template",
            "n_cache_reuse",
            "reasoning_control",
            "return_progress",
            "verbose",  # answers with the whole rendered prompt
        ),
        owned=(
            "cache_prompt",
            "chat_format",
            "chat_parser",
            "generation_prompt",
            "grammar_lazy",
            "grammar_triggers",
            "grammar_type",
            "input_extra",
            "lora",
            "multimodal_data",
            "n_cmpl",  # another name of n
            "preserved_tokens",
            "reasoning_budget_end_tag",
            "reasoning_budget_end_tags",
            "reasoning_budget_message",
            "reasoning_budget_start_tag",
            "response_fields",  # could leave usage out of the answer
            "sse_ping_interval",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS | {"n_predict"},
    structured=write_constraint,
    continuation=CONTINUATION,
)
"""Source: `make_llama_cmpl_schema` in ggml-org/llama.cpp tools/server/server-schema.cpp@0177c34, `n_predict` winning
over `max_completion_tokens` and `max_tokens`; `id_slot` and `input_extra` in server-context.cpp. Fields with which
llama.cpp's own layers talk to each other (chat_parser, grammar_triggers, preserved_tokens, ...) are owned: values
that those layers never make are untested there and may end the process."""
