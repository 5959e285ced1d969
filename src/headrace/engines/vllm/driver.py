"""The vLLM driver: what it says and understands; `launch.py` starts it. Source: vLLM 0.33.0; 0.32.0 run on CPU."""

import re
from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.engines.answers import read_error, translate
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
from headrace.engines.vllm.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.vllm.metrics import METRICS

_TOO_LONG = (
    re.compile(r"maximum context length is \d+", re.IGNORECASE),
    re.compile(r"longer than the maximum model length", re.IGNORECASE),
    re.compile(r"decoder prompt .* is longer than", re.IGNORECASE),
)
"""Source: vllm/renderers/params.py and vllm/v1/engine/input_processor.py."""

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
            "structured_outputs",
            "thinking_token_budget",
            "truncation_side",
        ),
        gated=(
            "chat_template",
            "chat_template_kwargs",  # could replace the template itself before 0.11.1 (CVE-2025-62426)
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
            "cache_salt",
            "data_parallel_rank",
            "ec_transfer_params",
            "kv_transfer_params",  # forged ones end the decode engine
            "mm_payload",
            "priority",
            "request_id",
            "routed_experts_prompt_start",
            "session_id",
            "stream_interval",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
)
"""Source: the request classes of vllm/entrypoints/{openai/*,anthropic,pooling/base}/protocol.py."""


class VllmDriver:
    """See `contract.Driver`."""

    kind = EngineKind.VLLM
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/health"
    """200 while the engine lives, 503 when it is dead; refused while it loads. Takes no scheduler slot."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. vLLM listens only once it has loaded, so its 503 means a dead engine core."""
        if reply.status == 503:
            return ProbeVerdict.DEAD
        return judge(reply)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        return translate(read_error(status, body), too_long=_TOO_LONG, engine="vLLM")

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
