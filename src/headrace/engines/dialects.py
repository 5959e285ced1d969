"""Field tables shared by drivers: what several engines understand, so that each driver lists only its own."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headrace.engines.constraint_reader import READERS
from headrace.engines.contract import FieldRule

GENERATION_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""What every engine of OpenAI's API serves."""

ALL_PATHS = GENERATION_PATHS | {"/v1/embeddings", "/v1/responses", "/v1/messages"}
"""What headrace can pass on. Source: the routes of vLLM 0.32.0, SGLang 0.5.23 and llama.cpp b11549, asked or listed."""

OPENAI_OUTPUT_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""Output limits of the chat, completions and responses APIs. Source: OpenAI's API reference."""

HF_SAMPLING_FIELDS = (
    "add_special_tokens",
    "allowed_token_ids",
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


OWNED_EVERYWHERE = (
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "cache_salt",
    "custom_logit_processor",  # a pickled Python object
    "data_parallel_rank",
    "disaggregated_params",
    "ec_transfer_params",
    "extra_args",
    "extra_body",  # clients merge it into the body; where it stays an object, some server may
    "id_slot",
    "kv_transfer_params",  # forged ones end vLLM's decode engine
    "priority",
    "request_id",
    "rid",
    "session_id",
    "slot_id",  # of older llama.cpp servers
)
"""Taken from no caller, whatever the engine: scheduling, cache, transfer, placement and the names of requests."""

OWNED_PREFIXES = ("bootstrap_", "disagg_", "kv_transfer_")
"""Families of owned fields: a version that adds one to a family does not open it to callers."""

CARRIERS = ("chat_template_kwargs", "custom_params", "mm_processor_kwargs", "media_io_kwargs", "vllm_xargs")
"""Fields whose objects an engine hands on to its inside, vLLM's `vllm_xargs` to where it keeps `kv_transfer_params`:
owned names are looked for in them. Source: vllm/entrypoints/openai/chat_completion/protocol.py, 0.33.0."""

SHAPED_EVERYWHERE = (
    *READERS,
    "add_generation_prompt",
    "chat_template_kwargs",
    "continue_final_message",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
)
"""Read by headrace whatever the engine, since engines ignore what they do not know: `gateway/entry/shaping.py`."""


def field_table(
    *, safe: Iterable[str] = (), gated: Iterable[str] = (), owned: Iterable[str] = ()
) -> Mapping[str, FieldRule]:
    """Join three lists and what holds everywhere to the table of a dialect; where a name is in two, the later wins."""
    table = dict.fromkeys(safe, FieldRule.SAFE)
    table |= dict.fromkeys(gated, FieldRule.GATED)
    table |= dict.fromkeys(SHAPED_EVERYWHERE, FieldRule.SHAPED)
    table |= dict.fromkeys((*OWNED_EVERYWHERE, *owned), FieldRule.OWNED)
    return MappingProxyType(table)
