"""The SGLang driver: what it says and understands; `launch.py` starts it. Source: SGLang 0.5.23, run on CPU."""

import re
from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.engines.answers import engine_fault, read_error, translate
from headrace.engines.contract import (
    Dialect,
    EmittedFlag,
    EngineError,
    Launch,
    OptionProblem,
    ProbeReply,
    ProbeVerdict,
    ReplicaSpec,
)
from headrace.engines.dialects import ALL_PATHS, HF_SAMPLING_FIELDS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.probes import judge
from headrace.engines.sglang.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.sglang.metrics import METRICS

_TOO_LONG = (
    re.compile(r"longer than the model's context length", re.IGNORECASE),
    re.compile(r"exceeds the model's (maximum )?context length", re.IGNORECASE),
)
"""Source: sglang/srt/managers/tokenizer_manager.py."""

_NO_SUCH_PATH = 404

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
            "chat_template_kwargs",  # handed to the tokenizer's template call as they are
            "custom_params",
            "ebnf",  # a hostile grammar can cost unbounded time; response_format is the bounded way
            "embed_override_token_id",
            "embed_overrides",
            "images_config",
            "input_ids",
            "json_schema",
            "max_dynamic_patch",
            "min_dynamic_patch",
            "mm_processor_kwargs",
            "regex",
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
            "bootstrap_host",
            "bootstrap_port",
            "bootstrap_room",
            "cache_salt",
            "custom_labels",  # becomes metric labels
            "custom_logit_processor",  # a pickled Python object
            "data_parallel_rank",
            "disagg_prefill_dp_rank",
            "extra_key",  # namespace of the prefix cache
            "lora_path",
            "priority",
            "request_id",
            "rid",
            "routed_dp_rank",
            "session_id",
            "session_params",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
)
"""Source: sglang/srt/entrypoints/openai/protocol.py."""


class SglangDriver:
    """See `contract.Driver`."""

    kind = EngineKind.SGLANG
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/ready"
    """200 or 503 without generating. `/health` generates a token, so that a busy engine looks dead there."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. Versions that have no `/ready` answer 404: they serve, and cannot say more cheaply."""
        if reply.status == _NO_SUCH_PATH:
            return ProbeVerdict.READY
        return judge(reply)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        """See `contract.Driver`. A failed transfer between prefill and decode is the engines' fault at any status."""
        answer = read_error(status, body)
        if "KVTransferError" in answer.message or "KVTransferError" in answer.type:
            return engine_fault(f"SGLang: {answer.message}")
        return translate(answer, too_long=_TOO_LONG, engine="SGLang")

    @property
    def emitted_flags(self) -> tuple[EmittedFlag, ...]:
        return EMITTED

    @property
    def options(self) -> frozenset[str]:
        return OPTIONS

    def check_options(self, spec: ReplicaSpec) -> Iterator[OptionProblem]:
        return check(spec)

    def launch(self, spec: ReplicaSpec) -> Launch:
        """See `contract.Driver` and `launch.py`."""
        return launch(spec)
