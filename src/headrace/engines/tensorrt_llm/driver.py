"""The TensorRT-LLM driver: what it says and understands; `launch.py` starts it. Read from its sources, never run."""

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
from headrace.engines.dialects import GENERATION_PATHS, HF_SAMPLING_FIELDS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.probes import judge
from headrace.engines.tensorrt_llm.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.tensorrt_llm.metrics import METRICS

_TOO_LONG = (
    re.compile(r"should not exceed max_num_tokens", re.IGNORECASE),
    re.compile(r"is greater than max_seq_len", re.IGNORECASE),
    re.compile(r"exceeds? (the )?(max_seq_len|max_input_len|max_num_tokens)", re.IGNORECASE),
)
"""Source: tensorrt_llm/llmapi/llm.py `_check_arguments`."""

_SERVER_FAULT = re.compile(
    r"cuda|nccl|cublas|out of memory|executor|\bmpi\b|tensorrt[-_ ]?llm\]|assertion|runtimeerror|traceback|"
    r"unavailable|shut(ting)? ?down|timed? ?out|kv ?cache|connection|broken pipe|ucx|nixl|internal error",
    re.IGNORECASE,
)
"""Words that no complaint about a request holds. trtllm-serve answers every exception, its own too, with status 400
(tensorrt_llm/serve/openai_server.py); only these are taken for its own fault. The other way round, taking unknown ones
for its fault, would re-send a request that ends engines (NVIDIA/TensorRT-LLM#6329) to one replica after the other."""

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
            "chat_template_kwargs",
            "detokenize",
            "media_io_kwargs",
            "mm_processor_kwargs",
            "return_context_logits",  # prompt times vocabulary
        ),
        owned=(
            "agent_hierarchy",
            "cache_salt",
            "conversation_params",
            "disaggregated_params",
            "injected_chat_template_kwargs",
            "lora_request",  # names a path on the engine's disk
            "priority",
            "prompt_token_ids",  # with them the engine ignores the messages
            "prompt_token_ids_b64",
        ),
    ),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
)
"""Source: tensorrt_llm/serve/openai_protocol.py@0076e93 of NVIDIA/TensorRT-LLM. It refuses unknown fields itself."""


class TensorrtLlmDriver:
    """See `contract.Driver`."""

    kind = EngineKind.TENSORRT_LLM
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/health"
    """200 or 503 without generating; newer versions answer every path with 503 `starting` while they load."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        return judge(reply)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        """See `contract.Driver`. A 400 may be the engine's own fault: `_SERVER_FAULT`.

        Validation answers (`{"error": "text"}`) repeat what the caller wrote, so their words prove nothing.
        """
        answer = read_error(status, body)
        is_validation = not answer.fields
        is_too_long = any(pattern.search(answer.message) for pattern in _TOO_LONG)
        if not is_validation and not is_too_long and _SERVER_FAULT.search(answer.message):
            return engine_fault(f"TensorRT-LLM: {answer.message}")
        return translate(answer, too_long=_TOO_LONG, engine="TensorRT-LLM")

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
