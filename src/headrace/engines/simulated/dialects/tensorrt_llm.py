"""TensorRT-LLM's two servers: trtllm-serve and Triton with its backend. Source: tensorrt_llm/serve, read; never run."""

import base64
from collections.abc import Mapping

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.ask import VALIDATION, Api, Ask, AskError, Body, token_prompt
from headrace.engines.simulated.config import EngineConfig
from headrace.engines.simulated.dialects.contract import Dialect, Ending, Host, Route, api_table
from headrace.engines.simulated.formats import DONE, ChunkShape, Format, Shape, encode_json
from headrace.engines.simulated.http import HttpRequest, Reply
from headrace.engines.simulated.native_formats import TritonGenerateFormat
from headrace.engines.simulated.pages.tensorrt_llm import iteration_statistics, metrics_page, triton_page
from headrace.engines.simulated.transfer import Fetch, Hold

FIELDS = frozenset(
    "add_generation_prompt add_special_tokens agent_hierarchy allowed_token_ids best_of cache_salt chat_template "
    "chat_template_kwargs continue_final_message conversation_params detokenize disaggregated_params documents "
    "early_stopping frequency_penalty ignore_eos include_stop_str_in_output injected_chat_template_kwargs "
    "length_penalty logit_bias lora_request media_io_kwargs metadata min_p min_tokens mm_processor_kwargs "
    "parallel_tool_calls presence_penalty priority prompt_ignore_length prompt_token_ids prompt_token_ids_b64 "
    "reasoning reasoning_effort repetition_penalty return_context_logits return_token_ids seed service_tier "
    "skip_special_tokens spaces_between_special_tokens stop_token_ids store suffix thinking thinking_token_budget "
    "top_k top_p_min truncate_prompt_tokens use_beam_search user".split()
)
"""Fields beside the standard ones that it takes; no others. Source: tensorrt_llm/serve/openai_protocol.py."""


class TensorrtLlmDialect(Dialect):
    """trtllm-serve. Every exception of its own is a 400, and unknown fields are refused."""

    apis = api_table(Api.CHAT, Api.COMPLETIONS, Api.RESPONSES)
    embeddings_path = None
    extensions = FIELDS
    refuses_unknown = True
    owned_by = "tensorrt_llm"
    shape = Shape(
        chat=ChunkShape(
            choice={"stop_reason": None},
            first_choice={"stop_reason": None},
            whole_choice={"stop_reason": None},
            message={"reasoning_content": None, "tool_calls": []},
        ),
        completion=ChunkShape(choice={"stop_reason": None}, whole_choice={"stop_reason": None}, finish_rides=True),
    )

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._iterations_read = 0

    def check_body(self, body: Body) -> None:
        """Without a guided backend response_format is ignored; without a tool parser so are tools."""
        if not self.config.has_guided_decoding:
            body.response_format = None
        if not self.config.has_tool_parser:
            body.tools = body.tool_choice = None

    def check_model(self, model: str | None) -> None:
        """Any name will do."""

    def read(self, api: Api, request: HttpRequest) -> Ask:
        ask = super().read(api, request)
        if ask.body.prompt_token_ids:
            ask.prompts = [token_prompt(ask.body.prompt_token_ids)]
        return ask

    def too_long(self, ask: Ask, prompt_tokens: int) -> AskError:
        message = (
            f"The sum of prompt length ({prompt_tokens:.1f}), query length (0) should not exceed max_num_tokens "
            f"({self.config.context_tokens})"
        )
        return AskError(400, message)

    def error(self, error: AskError, api: Api | None = None) -> Reply:
        if error.kind == VALIDATION:
            return Reply.json({"error": error.message}, 400)
        return Reply.json({"object": "error", **self.error_members(error)}, error.status)

    def error_event(self, error: AskError) -> bytes:
        return b"data: " + encode_json({"object": "error", **self.error_members(error)}) + b"\n\n" + DONE

    def loading_share_listening(self) -> float:
        return 1.0 if self.config.answers_while_loading else 0.0

    def loading_reply(self, request: HttpRequest) -> Reply:
        members = {
            "message": "The server is starting.",
            "type": "ServiceUnavailableError",
            "param": None,
            "code": "starting",
        }
        headers = (("retry-after", "1"), ("x-trtllm-server-state", "starting"))
        return Reply.json({"error": members}, 503, headers)

    @property
    def ending(self) -> Ending:
        return Ending.STOPS_LISTENING

    def abort_delay_s(self, *, is_stream: bool) -> float:
        return 1.0

    def transfer(self, ask: Ask, answer_id: str) -> Hold | Fetch | None:
        """Source: tensorrt_llm/disaggregated_params.py, tensorrt_llm/serve/openai_disagg_service.py."""
        params = ask.body.disaggregated_params
        if not params:
            return None
        if params.get("request_type") == "context_only":
            return Hold(key=str(params.get("disagg_request_id") or answer_id))
        if params.get("request_type") != "generation_only":
            return None
        try:
            state = base64.b64decode(str(params.get("encoded_opaque_state") or ""), validate=True)
            host, port, key = msgspec.json.decode(state, type=tuple[str, int, str])
        except (*UNDECODABLE, ValueError) as error:
            raise AskError(400, f"Invalid disaggregated params: {error}") from error
        return Fetch(host=host, port=port, key=key)

    def routes(self) -> Mapping[tuple[str, str], Route]:
        table: dict[tuple[str, str], Route] = {
            ("GET", "/health"): self._health,
            ("GET", "/health_generate"): lambda _, __: Reply.text("Generation health check OK"),
            ("GET", "/version"): self.version,
            ("GET", "/v1/models"): self.models,
            ("GET", "/metrics"): self._take_statistics,
            ("GET", "/server_info"): lambda _, __: Reply.json({"disaggregated_params": {}}),
            ("GET", "/perf_metrics"): lambda _, __: Reply.json([]),
            ("POST", "/kv_cache_events"): lambda host, _: Reply.json(host.take_cache_events()),
        }
        if self.config.has_metrics:
            table["GET", "/prometheus/metrics"] = lambda host, _: Reply.text(metrics_page(host.view()))
        return table

    def _take_statistics(self, host: Host, request: HttpRequest) -> Reply:
        """Reading empties the queue."""
        view = host.view()
        taken = iteration_statistics(view, self._iterations_read)
        self._iterations_read = view.iterations
        return Reply.json(taken)

    def _health(self, host: Host, request: HttpRequest) -> Reply:
        if host.is_ready:
            return Reply(content_type="text/plain; charset=utf-8")
        return self.error(AskError(503, "LLM is unavailable. Please check the server logs.", kind="ServiceUnavailable"))


def hold_members(config: EngineConfig, *, key: str, port: int, first_tokens: list[int]) -> dict[str, object]:
    """`disaggregated_params` of a context answer's choice."""
    state = base64.b64encode(msgspec.json.encode((config.host, port, key))).decode()
    params = {
        "request_type": "context_only",
        "first_gen_tokens": first_tokens,
        "ctx_request_id": abs(hash(key)) % 2**31,
        "encoded_opaque_state": state,
        "disagg_request_id": key,
        "ctx_dp_rank": 0,
        "draft_tokens": None,
    }
    return {"disaggregated_params": params}


class TritonDialect(TensorrtLlmDialect):
    """Triton Inference Server: KServe's paths, a generate endpoint per model, and `nv_*` metrics.

    The OpenAI paths of trtllm-serve are answered too, as Triton's OpenAI frontend does. Triton serves its metrics on a
    port of its own (8002); here they are on the one port, at `/metrics`.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.apis = {**self.apis, f"/v2/models/{config.served_model}/generate": Api.GENERATE}
        self.apis[f"/v2/models/{config.served_model}/generate_stream"] = Api.GENERATE

    extensions = TensorrtLlmDialect.extensions | {"text_input", "bad_words", "stop_words", "pad_id", "end_id"}

    def read(self, api: Api, request: HttpRequest) -> Ask:
        ask = super().read(api, request)
        if api is Api.GENERATE:
            ask.is_stream = request.path.endswith("/generate_stream")
        return ask

    def answer_format(self, ask: Ask, answer_id: str) -> Format:
        if ask.api is Api.GENERATE:
            return TritonGenerateFormat(self.config.served_model)
        return super().answer_format(ask, answer_id)

    def error(self, error: AskError, api: Api | None = None) -> Reply:
        return Reply.json({"error": error.message}, error.status)

    def loading_share_listening(self) -> float:
        """Triton listens early: live, not ready."""
        return 1.0

    def loading_reply(self, request: HttpRequest) -> Reply:
        if request.path == "/v2/health/live":
            return Reply(content_type="text/plain")
        return Reply(status=400, content_type="text/plain")

    def routes(self) -> Mapping[tuple[str, str], Route]:
        name = self.config.served_model
        return {
            **super().routes(),
            ("GET", "/v2"): lambda _, __: Reply.json(
                {"name": "triton", "version": self.config.version, "extensions": []}
            ),
            ("GET", "/v2/health/live"): lambda _, __: Reply(content_type="text/plain"),
            ("GET", "/v2/health/ready"): _triton_ready,
            ("GET", f"/v2/models/{name}/ready"): _triton_ready,
            ("GET", f"/v2/models/{name}"): lambda _, __: Reply.json({"name": name, "versions": ["1"]}),
            ("GET", "/metrics"): lambda host, _: Reply.text(triton_page(host.view())),
        }


def _triton_ready(host: Host, _: HttpRequest) -> Reply:
    return Reply(status=200 if host.is_ready else 400, content_type="text/plain")
