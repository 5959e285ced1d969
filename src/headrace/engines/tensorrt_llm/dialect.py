"""How trtllm-serve understands requests. Read from its sources; never run by us."""

from headrace.engines.contract import Dialect
from headrace.engines.dialects import GENERATION_PATHS, HF_SAMPLING_FIELDS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.tensorrt_llm.structured import write_constraint

DIALECT = Dialect(
    paths=GENERATION_PATHS | {"/v1/responses"},
    fields=field_table(
        safe=(
            *HF_SAMPLING_FIELDS,
            "documents",
            "prompt_ignore_length",
            "thinking",
            "thinking_token_budget",
            "top_p_min",
        ),
        gated=(
            "chat_template",
            "detokenize",
            "media_io_kwargs",
            "mm_processor_kwargs",
            "return_context_logits",  # prompt times vocabulary
        ),
        owned=(
            "agent_hierarchy",
            "conversation_params",
            "injected_chat_template_kwargs",
            "lora_request",  # names a path on the engine's disk
            "prompt_token_ids",  # with them the engine ignores the messages
            "prompt_token_ids_b64",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
    salted_paths=frozenset({"/v1/chat/completions"}),
    structured=write_constraint,
    enforces_structured_output=False,
)
"""Source: tensorrt_llm/serve/openai_protocol.py@0076e93 of NVIDIA/TensorRT-LLM. It refuses unknown fields itself."""
