"""vLLM's language. Source: vLLM 0.32.0 run on CPU, 0.33.0's wheel (entrypoints/openai, entrypoints/serve)."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.engines.simulated.ask import Api, Ask, AskError, Body
from headrace.engines.simulated.config import EngineConfig
from headrace.engines.simulated.dialects.contract import (
    Dialect,
    Ending,
    EngineDiesError,
    Host,
    Route,
    api_table,
    read_json,
    text_asked,
    tokens_asked,
)
from headrace.engines.simulated.formats import ChunkShape, Shape
from headrace.engines.simulated.http import HttpRequest, Reply
from headrace.engines.simulated.pages.vllm import metrics_page
from headrace.engines.simulated.transfer import Fetch, Hold
from headrace.simulation.outcome import Refusal

REMOTE_MEMBERS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids")


FINGERPRINT: Mapping[str, object] = MappingProxyType({"system_fingerprint": "vllm-simulated"})
WHOLE: Mapping[str, object] = MappingProxyType(
    {
        "service_tier": None,
        **FINGERPRINT,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
)
"""Members of every whole answer."""


class VllmDialect(Dialect):
    """`vllm serve`."""

    apis = api_table(Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.MESSAGES)
    extensions = frozenset(
        "add_generation_prompt cache_salt chat_template_kwargs continue_final_message ignore_eos kv_transfer_params "
        "min_tokens priority request_id return_token_ids structured_outputs".split()
    )
    owned_by = "vllm"
    shape = Shape(
        chat=ChunkShape(
            first_chunk={"prompt_token_ids": None, "prompt_text": None},
            last_chunk=FINGERPRINT,
            choice={"token_ids": None},
            final_choice={"stop_reason": None},
            whole={**WHOLE, "prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None},
            whole_choice={"token_ids": None, "routed_experts": None},
            message=dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning")),
            finish_rides=True,
        ),
        completion=ChunkShape(
            last_chunk=FINGERPRINT,
            choice={"stop_reason": None, "prompt_token_ids": None, "token_ids": None},
            whole=WHOLE,
            whole_choice=dict.fromkeys(
                ("stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts")
            ),
            finish_rides=True,
        ),
        tool_id_prefix="chatcmpl-tool-",
        repeats_input_usage=True,
    )

    def check_body(self, body: Body) -> None:
        if body.continue_final_message and body.add_generation_prompt is not False:
            message = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            raise AskError(400, message)

    def answer_id(self, ask: Ask, request: HttpRequest, made: str) -> str:
        named = request.headers.get("x-request-id") or ask.body.request_id
        return self.id_prefixes[ask.api] + (named or made)

    def output_limit(self, ask: Ask, prompt_tokens: int) -> int:
        """A prompt and limit that do not fit together are cut to the context; a limit beyond it alone is refused."""
        context = self.config.context_tokens
        if ask.max_tokens is not None and ask.max_tokens > context:
            message = (
                f"max_tokens={ask.max_tokens} cannot be greater than max_model_len={context}. Please request fewer "
                f"output tokens. (parameter=max_tokens, value={ask.max_tokens})"
            )
            raise AskError(400, message, param="max_tokens")
        return super().output_limit(ask, prompt_tokens)

    def too_long(self, ask: Ask, prompt_tokens: int) -> AskError:
        """It stops counting one beyond the context, so that the true length is not told."""
        context = self.config.context_tokens
        message = (
            f"This model's maximum context length is {context} tokens. However, your prompt contains at least "
            f"{context + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            f"length of the input prompt. (parameter=input_tokens, value={context + 1})"
        )
        return AskError(400, message, param="input_tokens")

    def queue_full(self, refusal: Refusal) -> AskError:
        message = "The engine is currently busy and cannot accept new requests. Please try again later."
        return AskError(503, message, kind="Service Unavailable")

    def error(self, error: AskError, api: Api | None = None) -> Reply:
        return self.messages_error(error) if api is Api.MESSAGES else super().error(error)

    def usage(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, object]:
        usage = super().usage(prompt_tokens, completion_tokens, cached_tokens)
        return {**usage, "completion_tokens_details": None}

    def cut_error(self) -> AskError:
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        return AskError(500, message, kind="InternalServerError")

    @property
    def ending(self) -> Ending:
        return Ending.REFUSES if self.config.shutdown_timeout_s > 0 else Ending.CUTS

    def refused_while_ending(self) -> AskError:
        return AskError(500, "cannot schedule new futures after shutdown", kind="InternalServerError")

    def transfer(self, ask: Ask, answer_id: str) -> Hold | Fetch | None:
        """Source: vllm/distributed/kv_transfer/kv_connector/v1/nixl."""
        params = ask.body.kv_transfer_params
        if not params:
            return None
        if params.get("do_remote_decode"):
            return Hold(key=answer_id)
        if not params.get("do_remote_prefill"):
            return None
        missing = [name for name in REMOTE_MEMBERS if params.get(name) is None]
        if missing:
            raise EngineDiesError(f"EngineCore died: kv_transfer_params without {', '.join(missing)}")
        key = str(params["remote_request_id"])
        return Fetch(host=str(params["remote_host"]), port=int(params["remote_port"]), key=key)

    def routes(self) -> Mapping[tuple[str, str], Route]:
        return {
            ("GET", "/health"): _healthy,
            ("GET", "/ping"): _healthy,
            ("POST", "/ping"): _healthy,
            ("GET", "/version"): self.version,
            ("GET", "/load"): lambda host, _: Reply.json({"server_load": host.view().load.running}),
            ("GET", "/v1/models"): self.models,
            ("GET", "/metrics"): lambda host, _: Reply.text(metrics_page(host.view()), content_type=PROMETHEUS),
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): lambda _, request: Reply.json({"prompt": text_asked(read_json(request))}),
        }

    def _tokenize(self, host: Host, request: HttpRequest) -> Reply:
        body = read_json(request)
        self.check_model(body.get("model"))
        tokens = tokens_asked(body)
        return Reply.json({"count": len(tokens), "max_model_len": self.config.context_tokens, "tokens": tokens})


PROMETHEUS = "text/plain; version=1.0.0; charset=utf-8"


def hold_members(config: EngineConfig, *, key: str, port: int, prompt_tokens: int) -> dict[str, object]:
    """`kv_transfer_params` of a prefill answer: what the decode engine is to be given, unchanged."""
    block = config.engine.kv.block_tokens
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": list(range(-(-prompt_tokens // block))),
        "remote_engine_id": f"{config.served_model}-{port}",
        "remote_request_id": key,
        "remote_host": config.host,
        "remote_port": port,
        "remote_num_tokens": prompt_tokens,
        "tp_size": 1,
        "transfer_mode": "pull",
    }
    return {"kv_transfer_params": params}


def _healthy(host: Host, _: HttpRequest) -> Reply:
    """200 even while it drains."""
    return Reply(content_type="application/json")
