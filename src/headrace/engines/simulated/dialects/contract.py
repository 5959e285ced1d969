"""What differs between the engines that are simulated, as one class with the most common answers.

A dialect is pure: it reads requests and words answers; `service.py` does the rest.
"""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.ask import Api, Ask, AskError, Body, chat_prompt, read_ask, read_body
from headrace.engines.simulated.config import EngineConfig
from headrace.engines.simulated.event_formats import MessagesFormat, ResponsesFormat
from headrace.engines.simulated.formats import DONE, Format, Shape, encode_json
from headrace.engines.simulated.http import HttpRequest, Reply
from headrace.engines.simulated.openai_formats import ChatFormat, CompletionFormat
from headrace.engines.simulated.stats import MetricsView
from headrace.engines.simulated.text import decode, encode
from headrace.engines.simulated.transfer import Fetch, Hold
from headrace.simulation.outcome import Refusal, RefusalReason


class Ending(StrEnum):
    """What SIGTERM does to the requests that run."""

    CUTS = "cuts"
    """They get an error, and the process ends at once."""
    REFUSES = "refuses"
    """They finish; new ones are answered with an error."""
    KEEPS_ACCEPTING = "keeps-accepting"
    """They finish, and so do new ones."""
    STOPS_LISTENING = "stops-listening"
    """They finish; new connections are refused."""


class Host(Protocol):
    """What a dialect's routes may look at and do."""

    @property
    def config(self) -> EngineConfig: ...

    @property
    def is_ready(self) -> bool:
        """Loaded, not dead and not ending."""
        ...

    def view(self) -> MetricsView: ...

    def slots(self) -> list[dict[str, object]]:
        """llama.cpp's slots: which work."""
        ...

    def slot_tokens(self, slot: int) -> list[int]:
        """Tokens whose KV a slot has."""
        ...

    def restore_slot(self, slot: int, tokens: list[int]) -> None: ...

    def abort(self, request_id: str | None) -> int:
        """End running requests, by name or all; how many were ended."""
        ...

    def clear_cache(self) -> None: ...

    def take_cache_events(self) -> list[dict[str, object]]:
        """KV cache events that nobody has asked for yet."""
        ...


Route = Callable[[Host, HttpRequest], Reply]


class EngineDiesError(Exception):
    """What the request asked for kills a real engine; the message is what it leaves on stderr."""


def api_table(*apis: Api, **aliases: Api) -> Mapping[str, Api]:
    """Path -> API."""
    return MappingProxyType({**{api.value: api for api in apis}, **aliases})


class Dialect:
    """One engine's language. Subclasses differ where their engine does."""

    apis = api_table(Api.CHAT, Api.COMPLETIONS)
    embeddings_path: str | None = "/v1/embeddings"
    extensions: frozenset[str] = frozenset()
    """Fields beside those of the public APIs that it reads."""
    refuses_unknown = False
    continues_last_assistant = False
    echoes_continuation = False
    """A whole answer repeats the part that it continues; a stream does not."""
    reports_transferred_as_cached = False
    """Whether KV that came from elsewhere counts as cached in the usage. (vLLM leaves NIXL's out.)"""
    head_waits_for_token = False
    """The status is sent with the first token, so that what fails before is an error answer, not an event."""
    id_prefixes: Mapping[Api, str] = MappingProxyType(
        {
            Api.CHAT: "chatcmpl-",
            Api.COMPLETIONS: "cmpl-",
            Api.RESPONSES: "resp_",
            Api.MESSAGES: "msg_",
            Api.GENERATE: "",
        }
    )
    owned_by = ""
    shape = Shape()
    not_found = Reply.json({"detail": "Not Found"}, 404)

    def __init__(self, config: EngineConfig) -> None:
        self.config = config

    # requests

    def read(self, api: Api, request: HttpRequest) -> Ask:
        """Read a generation request.

        Raises: AskError.
        """
        body = read_body(request.body, self.extensions, refuses_unknown=self.refuses_unknown)
        self.check_body(body)
        self.check_model(body.model)
        return read_ask(api, body, continues_last_assistant=self.continues_last_assistant)

    def check_body(self, body: Body) -> None:
        """Refuse or drop what this engine reads otherwise."""

    def check_model(self, model: str | None) -> None:
        if model is not None and model != self.config.served_model:
            message = f"The model `{model}` does not exist. Valid aliases: {self.config.served_model}."
            raise AskError(404, message, kind="NotFoundError", param="model")

    def answer_id(self, ask: Ask, request: HttpRequest, made: str) -> str:
        """The id of an answer; `made` is a random one."""
        return self.id_prefixes[ask.api] + made

    def output_limit(self, ask: Ask, prompt_tokens: int) -> int:
        """How many tokens the answer may have.

        Raises: AskError where prompt or limit do not fit the context.
        """
        room = self.config.context_tokens - prompt_tokens
        if room < 1:
            raise self.too_long(ask, prompt_tokens)
        return room if ask.max_tokens is None else min(ask.max_tokens, room)

    def too_long(self, ask: Ask, prompt_tokens: int) -> AskError:
        raise NotImplementedError

    def refused(self, refusal: Refusal, ask: Ask, prompt_tokens: int) -> AskError:
        """The engine's words for what its scheduler did not take."""
        if refusal.reason is RefusalReason.QUEUE_FULL:
            return self.queue_full(refusal)
        return self.too_long(ask, prompt_tokens)

    def queue_full(self, refusal: Refusal) -> AskError:
        return AskError(503, "The request queue is full.", kind="ServiceUnavailableError")

    def transfer(self, ask: Ask, answer_id: str) -> Hold | Fetch | None:
        """The leg of a disaggregated request that this is.

        Raises: AskError; EngineDiesError where a real engine dies of it.
        """
        return None

    # answers

    def usage(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, object]:
        total = prompt_tokens + completion_tokens
        usage: dict[str, object] = {
            "prompt_tokens": prompt_tokens,
            "total_tokens": total,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": None,
        }
        if self.config.reports_cached_tokens:
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        return usage

    def error(self, error: AskError, api: Api | None = None) -> Reply:
        """An error answer; `api` where it is known which API was asked."""
        return Reply.json({"error": self.error_members(error)}, error.status)

    def no_embeddings(self) -> Reply:
        """What a server that generates says to an embeddings request."""
        return self.not_found

    def messages_error(self, error: AskError) -> Reply:
        """The same in Anthropic's form, as vLLM and SGLang give it in the Messages API."""
        members = self.error_members(error)
        shown = {"type": members["type"], "message": members["message"]}
        return Reply.json({"type": "error", "error": shown}, error.status)

    def error_members(self, error: AskError) -> dict[str, object]:
        kind = "Bad Request" if error.kind == "ValidationError" else error.kind
        members = {"message": error.message, "type": kind, "param": error.param, "code": error.status}
        return {**members, **error.members}

    def error_event(self, error: AskError) -> bytes:
        """An error within a stream."""
        return b"data: " + encode_json({"error": self.error_members(error)}) + b"\n\n" + DONE

    def cut_error(self) -> AskError:
        """What running requests get when the server ends without waiting for them."""
        return AskError(500, "The server is shutting down.", kind="InternalServerError")

    def answer_format(self, ask: Ask, answer_id: str) -> Format:
        """How the answer looks; the APIs that are not OpenAI's or Anthropic's are the engines' own."""
        model = ask.model or self.config.served_model
        match ask.api:
            case Api.CHAT:
                return ChatFormat(ask, self.shape, answer_id=answer_id, model=model)
            case Api.RESPONSES:
                return ResponsesFormat(ask, answer_id, model, int(time.time()))  # noqa: TID251 # shown in the answer
            case Api.MESSAGES:
                return MessagesFormat(ask, answer_id, model, repeats_input_usage=self.shape.repeats_input_usage)
            case _:
                return CompletionFormat(ask, self.shape, answer_id=answer_id, model=model)

    # life

    @property
    def ending(self) -> Ending:
        return Ending.STOPS_LISTENING

    def refused_while_ending(self) -> AskError:
        return AskError(503, "The server is shutting down.", kind="ServiceUnavailableError")

    def loading_share_listening(self) -> float:
        """Share of the time of loading, at its end, in which the port is open: 0 refuses until it is ready."""
        return 0.0

    def loading_reply(self, request: HttpRequest) -> Reply:
        """What is answered while it loads."""
        return self.error(AskError(503, "Starting", kind="ServiceUnavailableError"))

    def abort_delay_s(self, *, is_stream: bool) -> float:
        """How long it takes to notice that the client left."""
        return 0.0

    # everything but generation

    def routes(self) -> Mapping[tuple[str, str], Route]:
        return {}

    def models(self, host: Host, request: HttpRequest) -> Reply:
        return Reply.json({"object": "list", "data": [self.model_card()]})

    def model_card(self) -> dict[str, object]:
        name = self.config.served_model
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": self.owned_by,
            "root": name,
            "parent": None,
            "max_model_len": self.config.context_tokens,
        }

    def version(self, host: Host, request: HttpRequest) -> Reply:
        return Reply.json({"version": self.config.version})


def read_json(request: HttpRequest) -> Mapping[str, Any]:
    """The body of a small request.

    Raises: AskError.
    """
    try:
        return msgspec.json.decode(request.body or b"{}", type=dict[str, Any])
    except UNDECODABLE as error:
        raise AskError(400, f"JSON decode error: {error}") from error


def tokens_asked(body: Mapping[str, Any]) -> list[int]:
    """The tokens of a tokenize request: of its prompt, content or chat."""
    if messages := body.get("messages"):
        return list(chat_prompt(messages, is_continued=False).tokens)
    return list(encode(str(body.get("prompt") or body.get("content") or body.get("text") or "")))


def text_asked(body: Mapping[str, Any]) -> str:
    """The text of a detokenize request."""
    return decode([int(token) for token in body.get("tokens") or ()])
