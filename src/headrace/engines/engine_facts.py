"""What one must know of each engine beside flags and metrics: probes, drain, errors, disaggregation. For people; the
drivers act on the same facts. Read in the sources named, or seen on running engines where it says "run".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.domain.endpoint import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFact:
    """One fact."""

    about: str
    """`start`, `ready`, `deep check`, `queue`, `errors`, `cancel`, `drain`, `prefill/decode` or `security`."""
    text: str
    source: str


def _facts(*rows: tuple[str, str, str]) -> tuple[EngineFact, ...]:
    return tuple(EngineFact(about=about, text=text, source=source) for about, text, source in rows)


_LAUNCHER = "vllm/entrypoints/launchers/launcher.py 0.33.0; 0.32.0 run"
_VLLM_HEALTH = "vllm/entrypoints/serve/instrumentator/health.py 0.33.0; 0.32.0 run"
_VLLM_ERRORS = "vllm/entrypoints/serve/engine/protocol.py 0.33.0; 0.32.0 run"
_NIXL = "vllm/distributed/kv_transfer/kv_connector/v1/nixl 0.33.0; 0.32.0 run"
_SGLANG_HTTP = "sglang/srt/entrypoints/http_server.py 0.5.23, run"
_SGLANG_MANAGER = "sglang/srt/managers/tokenizer_manager.py 0.5.23, run"
_TRT_SERVER = "tensorrt_llm/serve/openai_server.py"
_LLAMA = "xllamacpp 2026.10.11549, run"

FACTS: Mapping[EngineKind, tuple[EngineFact, ...]] = MappingProxyType(
    {
        EngineKind.VLLM: _facts(
            ("start", "connections are refused until it has loaded", _VLLM_HEALTH),
            ("ready", "GET /health: 200 while the engine lives, 503 once it is dead; costs nothing", _VLLM_HEALTH),
            (
                "queue",
                "unbounded unless --max-num-queued-reqs or --max-num-queued-tokens: then 503 without Retry-After",
                "vllm/engine/arg_utils.py 0.33.0; 0.32.0 run",
            ),
            (
                "errors",
                'nested {"error": {message, type, param, code}}; unknown request fields are ignored',
                _VLLM_ERRORS,
            ),
            ("cancel", "a caller that leaves is aborted within 0.1 s and counted in no latency metric", _VLLM_ERRORS),
            (
                "drain",
                (
                    "SIGTERM cuts streams at once (an error event, then [DONE]; or silence while the caller stays "
                    "connected) unless --shutdown-timeout is above 0; while it drains, new requests get 500 though "
                    "/health says 200"
                ),
                _LAUNCHER,
            ),
            (
                "prefill/decode",
                (
                    "two requests one after the other: prefill answers kv_transfer_params, which decode gets "
                    "unchanged; side channel VLLM_NIXL_SIDE_CHANNEL_HOST and _PORT"
                ),
                _NIXL,
            ),
            (
                "security",
                "--api-key guards /v1 and the like; /metrics, /invocations and others stay open",
                "vllm/entrypoints/serve/middleware/authenticate.py 0.33.0; 0.32.0 run",
            ),
        ),
        EngineKind.SGLANG: _facts(
            ("start", "connections are refused, then /health says 503 until it is warm", _SGLANG_HTTP),
            ("ready", "GET /ready: 200 or 503, without generating", _SGLANG_HTTP),
            (
                "deep check",
                (
                    "GET /health and /health_generate generate a token: no answer within 20 s under load means busy, "
                    "not dead"
                ),
                _SGLANG_HTTP,
            ),
            ("queue", "unbounded unless --max-queued-requests: then 503 without Retry-After", _SGLANG_MANAGER),
            (
                "errors",
                (
                    'flat {"object": "error", message, type, param, code}, in streams within {"error": ...}; "model" '
                    "is not checked; validation errors name a path of its source, which callers do not see"
                ),
                "sglang/srt/entrypoints/openai/serving_base.py 0.5.23, run",
            ),
            ("cancel", "a stream whose caller leaves is aborted in 0.1 s, a whole answer in 3 s", _SGLANG_MANAGER),
            (
                "drain",
                (
                    "SIGTERM drains without bound and goes on accepting: whoever stops it stops sending first, and "
                    "kills it after a time of its own"
                ),
                _SGLANG_MANAGER,
            ),
            (
                "prefill/decode",
                (
                    "the same request to both at once with bootstrap_host, bootstrap_port and a bootstrap_room of its "
                    "own; decode's answer counts"
                ),
                "sglang/srt/disaggregation 0.5.23, run",
            ),
        ),
        EngineKind.TENSORRT_LLM: _facts(
            (
                "start",
                "newest: every route answers 503 starting; older: connections are refused",
                "tensorrt_llm/serve/readiness.py@e6c89c0",
            ),
            ("ready", "GET /health: 200, or 503 where the executor is not available", _TRT_SERVER),
            ("queue", "without bound, and none can be set: the gateway's admission is the only one", _TRT_SERVER),
            (
                "errors",
                (
                    "every exception is a 400 BadRequestError, its own faults too; response_format is ignored unless a "
                    "guided-decoding backend is set"
                ),
                _TRT_SERVER,
            ),
            ("cancel", "looked for once a second", _TRT_SERVER),
            ("drain", "no flag: uvicorn waits for what runs, without bound", _TRT_SERVER),
            (
                "prefill/decode",
                "disaggregated_params with request_type context_only, then generation_only and prompt_token_ids",
                "tensorrt_llm/disaggregated_params.py",
            ),
            ("security", "no API key at all: keep it on a private network", _TRT_SERVER),
        ),
        EngineKind.LLAMACPP: _facts(
            ("start", "503 Loading model until it has loaded, a few seconds for a small one", _LLAMA),
            ("ready", "GET /health: 200; takes no slot", _LLAMA),
            ("queue", "unbounded; context is divided between slots", _LLAMA),
            ("errors", "nested error with n_prompt_tokens and n_ctx where a prompt is too long", _LLAMA),
            ("cancel", "a stream whose caller leaves frees its slot at the next token", _LLAMA),
            ("drain", "headrace's own process finishes what runs on SIGTERM, and ends at once on a second", _LLAMA),
            (
                "prefill/decode",
                "POST /slots/N?action=save and restore through a shared folder, then the request with id_slot",
                _LLAMA,
            ),
        ),
        EngineKind.OPENAI: _facts(
            ("ready", "GET /v1/models: any answer but a 5xx means alive", "OpenAI's API reference"),
        ),
    }
)
