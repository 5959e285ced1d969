"""SGLang's language. Source: SGLang 0.5.23 run on CPU; srt/entrypoints of its wheel."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.engines.simulated.ask import Api, Ask, AskError, Body
from headrace.engines.simulated.config import Role
from headrace.engines.simulated.dialects.contract import (
    Dialect,
    Ending,
    Host,
    Route,
    api_table,
    read_json,
    text_asked,
    tokens_asked,
)
from headrace.engines.simulated.formats import DONE, ChunkShape, Format, Shape, encode_json
from headrace.engines.simulated.http import HttpRequest, Reply
from headrace.engines.simulated.native_formats import SglangGenerateFormat
from headrace.engines.simulated.pages.sglang import loads, metrics_page
from headrace.engines.simulated.transfer import Fetch, Hold

BOOTSTRAP_PORT = 8998
"""`--disaggregation-bootstrap-port` where none is given. Source: SGLang's --help."""


METADATA: Mapping[str, object] = MappingProxyType({"metadata": {"weight_version": "simulated"}})


class SglangDialect(Dialect):
    """`python -m sglang.launch_server`. It does not check the model's name."""

    apis = api_table(*Api)
    extensions = frozenset(
        "bootstrap_host bootstrap_port bootstrap_room continue_final_message ebnf ignore_eos input_ids json_schema "
        "min_tokens priority regex return_token_ids rid sampling_params".split()
    )
    id_prefixes = MappingProxyType(dict.fromkeys(Api, ""))
    owned_by = "sglang"
    head_waits_for_token = True
    shape = Shape(
        chat=ChunkShape(
            choice={"matched_stop": None},
            first_choice={"matched_stop": None},
            final_choice={"matched_stop": None},
            delta={"reasoning_content": None},
            whole=METADATA,
            message={"reasoning_content": None},
        ),
        completion=ChunkShape(
            chunk={"usage": None},
            choice={"matched_stop": None},
            final_choice={"matched_stop": None},
            whole=METADATA,
            finish_rides=True,
        ),
        tool_content="",
    )

    def check_model(self, model: str | None) -> None:
        """Any name will do, and is echoed."""

    def check_body(self, body: Body) -> None:
        """An empty list of tools is none."""
        body.tools = body.tools or None

    def read(self, api: Api, request: HttpRequest) -> Ask:
        ask = super().read(api, request)
        if self.config.role is not Role.BOTH and ask.body.bootstrap_room is None:
            raise AskError(400, "Disaggregated request received without bootstrap room id.")
        return ask

    def answer_id(self, ask: Ask, request: HttpRequest, made: str) -> str:
        return ask.body.rid or made

    def output_limit(self, ask: Ask, prompt_tokens: int) -> int:
        context = self.config.context_tokens
        if ask.max_tokens is not None and ask.max_tokens > context and ask.api is not Api.GENERATE:
            message = (
                f"max_completion_tokens is too large: {ask.max_tokens}.This model supports at most {context} "
                "completion tokens."
            )
            raise AskError(400, message)
        if prompt_tokens < context and ask.max_tokens is not None and prompt_tokens + ask.max_tokens > context:
            total = prompt_tokens + ask.max_tokens
            message = (
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {total} tokens: {prompt_tokens} tokens from the input messages and {ask.max_tokens} "
                "tokens for the completion."
            )
            raise AskError(400, message)
        return super().output_limit(ask, prompt_tokens)

    def too_long(self, ask: Ask, prompt_tokens: int) -> AskError:
        message = (
            f"The input ({prompt_tokens} tokens) is longer than the model's context length "
            f"({self.config.context_tokens} tokens)."
        )
        return AskError(400, message)

    def no_embeddings(self) -> Reply:
        message = "This model does not appear to be an embedding model by default."
        return self.error(AskError(400, message))

    def usage(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, object]:
        usage = super().usage(prompt_tokens, completion_tokens, cached_tokens)
        return {**usage, "reasoning_tokens": 0, "completion_tokens_details": None}

    def error(self, error: AskError, api: Api | None = None) -> Reply:
        if api is Api.MESSAGES:
            return self.messages_error(error)
        return Reply.json({"object": "error", **self.error_members(error)}, error.status)

    def error_event(self, error: AskError) -> bytes:
        members = {"object": "error", **self.error_members(error)}
        return b"data: " + encode_json({"error": members}) + b"\n\n" + DONE

    def answer_format(self, ask: Ask, answer_id: str) -> Format:
        if ask.api is Api.GENERATE:
            return SglangGenerateFormat(answer_id, len(ask.prompts[0].tokens))
        return super().answer_format(ask, answer_id)

    @property
    def ending(self) -> Ending:
        return Ending.KEEPS_ACCEPTING

    def loading_share_listening(self) -> float:
        """The server is up while the warm-up is pending; before, it refuses."""
        return 0.3

    def loading_reply(self, request: HttpRequest) -> Reply:
        if request.path in ("/model_info", "/get_model_info"):
            return Reply.json({"model_path": self.config.served_model, "is_generation": True})
        return Reply(status=503, content_type="text/plain; charset=utf-8")

    def abort_delay_s(self, *, is_stream: bool) -> float:
        return 0.1 if is_stream else 3.0

    def transfer(self, ask: Ask, answer_id: str) -> Hold | Fetch | None:
        """Both legs get the same body at once, and meet by the room. Source: srt/disaggregation."""
        if self.config.role is Role.BOTH:
            return None
        key = f"room-{ask.body.bootstrap_room}"
        if self.config.role is Role.PREFILL:
            return Hold(key=key, waits_for_fetch=True)
        host, port = ask.body.bootstrap_host or "127.0.0.1", ask.body.bootstrap_port or BOOTSTRAP_PORT
        return Fetch(host=host, port=port, key=key, waits_for_hold=True)

    def routes(self) -> Mapping[tuple[str, str], Route]:
        table: dict[tuple[str, str], Route] = {
            ("GET", "/ready"): _ready,
            ("GET", "/health"): _ready,
            ("GET", "/health_generate"): _ready,
            ("GET", "/ping"): lambda _, __: Reply(content_type="text/plain; charset=utf-8"),
            ("GET", "/v1/models"): self.models,
            ("GET", "/v1/loads"): self._loads,
            ("POST", "/abort_request"): self._abort,
            ("POST", "/flush_cache"): _flush,
            ("GET", "/flush_cache"): _flush,
            ("POST", "/v1/tokenize"): self._tokenize,
            ("POST", "/v1/detokenize"): lambda _, request: Reply.json({"text": text_asked(read_json(request))}),
        }
        for path in ("/server_info", "/get_server_info"):
            table["GET", path] = self._server_info
        for path in ("/model_info", "/get_model_info"):
            table["GET", path] = lambda _, request: self.loading_reply(request)
        if self.config.has_metrics:
            table["GET", "/metrics"] = lambda host, _: Reply.text(metrics_page(host.view()))
        return table

    def _loads(self, host: Host, request: HttpRequest) -> Reply:
        if request.query.get("format") == "prometheus":
            return Reply.text(metrics_page(host.view()))
        return Reply.json(loads(host.view(), self.config.version))

    def _server_info(self, host: Host, request: HttpRequest) -> Reply:
        name = self.config.served_model
        role = "null" if self.config.role is Role.BOTH else self.config.role.value
        bounds = self.config.engine.bounds
        return Reply.json(
            {
                "model_path": name,
                "tokenizer_path": name,
                "served_model_name": name,
                "context_length": self.config.context_tokens,
                "max_running_requests": bounds.max_sequences,
                "max_queued_requests": bounds.max_queued_requests,
                "disaggregation_mode": role,
                "disaggregation_bootstrap_port": self.config.bootstrap_port or BOOTSTRAP_PORT,
                "enable_metrics": self.config.has_metrics,
                "max_total_num_tokens": host.view().kv_tokens_total,
                "dtype": "auto",
                "kv_cache_dtype": self.config.kv_cache_dtype,
                "page_size": self.config.engine.kv.block_tokens,
                "tp_size": self.config.tensor,
                "pp_size": self.config.pipeline,
                "dp_size": 1,
                "attn_dp_size": 1,
                "attn_cp_size": 1,
                "version": self.config.version,
            }
        )

    def _abort(self, host: Host, request: HttpRequest) -> Reply:
        body = read_json(request)
        host.abort(None if body.get("abort_all") else str(body.get("rid") or ""))
        return Reply(content_type="text/plain; charset=utf-8")

    def _tokenize(self, host: Host, request: HttpRequest) -> Reply:
        tokens = tokens_asked(read_json(request))
        return Reply.json({"tokens": tokens, "count": len(tokens), "max_model_len": self.config.context_tokens})


def _ready(host: Host, _: HttpRequest) -> Reply:
    """503 from the moment that SIGTERM came. (The real /health generates a token; here it only looks.)"""
    return Reply(status=200 if host.is_ready else 503, content_type="text/plain; charset=utf-8")


def _flush(host: Host, _: HttpRequest) -> Reply:
    host.clear_cache()
    return Reply.text("Cache flushed.\n")
