"""How vLLM understands requests. Source: vLLM 0.33.0's wheel; 0.32.0 run on CPU."""

from headrace.engines.contract import Dialect
from headrace.engines.dialects import ALL_PATHS, HF_SAMPLING_FIELDS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.vllm.continuation import CONTINUATION
from headrace.engines.vllm.structured import write_constraint

DIALECT = Dialect(
    paths=ALL_PATHS,
    fields=field_table(
        safe=(
            *HF_SAMPLING_FIELDS,
            "bad_words",
            "documents",
            "include_reasoning",
            "logprob_token_ids",
            "repetition_detection",
            "return_tokens_as_token_ids",
            "thinking_token_budget",
            "truncation_side",
        ),
        gated=(
            "chat_template",
            "enable_response_messages",
            "logits_processors",
            "media_io_kwargs",
            "mm_processor_kwargs",
            "previous_input_messages",
            "prompt_embeds",  # tensors made by a caller
            "prompt_logprobs",  # memory grows with prompt times vocabulary
            "return_mm_kwargs",
            "return_prompt_text",
            "return_token_offsets",
            "return_weight_versions",
            "vllm_xargs",
            "watermarking",
        ),
        owned=(
            "mm_payload",
            "routed_experts_prompt_start",
            "stream_interval",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
    salted_paths=ALL_PATHS,
    structured=write_constraint,
    continuation=CONTINUATION,
)
"""Source: the request classes of vllm/entrypoints/{openai/*,anthropic,pooling/base}/protocol.py."""
