"""How SGLang understands requests. Source: SGLang 0.5.23 (PyPI wheel), run on CPU."""

from headrace.engines.contract import Dialect
from headrace.engines.dialects import ALL_PATHS, GENERATION_PATHS, HF_SAMPLING_FIELDS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.sglang.continuation import CONTINUATION
from headrace.engines.sglang.structured import write_constraint

DIALECT = Dialect(
    paths=ALL_PATHS,
    fields=field_table(
        safe=(
            *HF_SAMPLING_FIELDS,
            "no_stop_trim",
            "return_cached_tokens_details",
            "separate_reasoning",
            "stop_regex",
            "stream_reasoning",
            "thinking",
        ),
        gated=(
            "custom_params",
            "embed_override_token_id",
            "embed_overrides",
            "images_config",
            "input_ids",
            "max_dynamic_patch",
            "min_dynamic_patch",
            "mm_processor_kwargs",
            "return_flat_raw_output_top_logprobs",
            "return_flat_raw_top_logprobs_b64",
            "return_hidden_states",
            "return_input_ids_in_sglext",
            "return_meta_info",
            "return_output_ids_in_sglext",
            "return_prompt_token_ids",
            "return_routed_experts",
            "return_sampling_mask",
            "return_spec_tokens_details",
            "routed_experts_start_len",
            "sampling_logprobs_mode",
            "task",
            "use_audio_in_video",
            "video_config",
            "watermark",
        ),
        owned=(
            "custom_labels",  # becomes metric labels
            "disagg_prefill_dp_rank",
            "extra_key",  # namespace of the prefix cache
            "lora_path",
            "routed_dp_rank",
            "session_params",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
    salted_paths=GENERATION_PATHS | {"/v1/responses"},
    structured=write_constraint,
    continuation=CONTINUATION,
)
"""Source: sglang/srt/entrypoints/openai/protocol.py."""
