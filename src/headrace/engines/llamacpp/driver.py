"""The llama.cpp driver: what it says and understands; how it is started is in `launch.py`."""

import re
from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
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
from headrace.engines.dialects import ALL_PATHS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.llamacpp.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.llamacpp.metrics import METRICS
from headrace.engines.probes import judge

_TOO_LONG = (
    re.compile(r"exceeds? the available context size", re.IGNORECASE),
    re.compile(r"input .{0,40}is too large to process", re.IGNORECASE),
)
"""Source: answers of xllamacpp 2026.10.11549 (tests/captures/llamacpp)."""

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
            "add_generation_prompt",
            "continue_final_message",
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
            "chat_template_kwargs",
            "grammar",  # a hostile grammar can cost unbounded time; response_format is the bounded way
            "json_schema",
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
            "id_slot",
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
)
"""Source: `make_llama_cmpl_schema` in ggml-org/llama.cpp tools/server/server-schema.cpp@0177c34, `n_predict` winning
over `max_completion_tokens` and `max_tokens`; `id_slot` and `input_extra` in server-context.cpp. Fields with which
llama.cpp's own layers talk to each other (chat_parser, grammar_triggers, preserved_tokens, ...) are owned: values
that those layers never make are untested there and may end the process."""


class LlamacppDriver:
    """See `contract.Driver`."""

    kind = EngineKind.LLAMACPP
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/health"
    """503 `Loading model` until the model is loaded; takes no slot."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        return judge(reply)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        """See `contract.Driver`; `exceed_context_size_error` carries both numbers."""
        answer = read_error(status, body)
        if answer.type == "exceed_context_size_error":
            return EngineError(
                code=ErrorCode.CONTEXT_TOO_LONG,
                message=_too_long_message(answer.number("n_prompt_tokens"), answer.number("n_ctx"), answer.message),
                param=answer.param,
            )
        if answer.status == 404:  # a path; llama.cpp takes any model name
            return engine_fault(f"llama.cpp does not serve this path: {answer.message}")
        if answer.status == 501:  # such as embeddings of a pool without `embeddings: true`
            return EngineError(code=ErrorCode.UNSUPPORTED_PARAMETER, message=answer.message)
        return translate(answer, too_long=_TOO_LONG, engine="llama.cpp")

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


def _too_long_message(prompt_tokens: int | None, context_tokens: int | None, fallback: str) -> str:
    if prompt_tokens is None or context_tokens is None:
        return fallback or "the prompt is longer than the model's context"
    return f"the prompt has {prompt_tokens} tokens, and the model's context holds {context_tokens}: shorten the prompt"
