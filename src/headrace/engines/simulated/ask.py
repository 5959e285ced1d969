"""What a generation request asks for: a body of any of the APIs, read as the dialect reads it.

Unknown fields are ignored, and fields of other engines too, since that is what real ones do; TensorRT-LLM refuses them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.text import Message, chat_segments, content_text, decode, encode


class Api(StrEnum):
    """The APIs that generate text."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    GENERATE = "/generate"
    """The engine's own: SGLang's, or Triton's `/v2/models/<model>/generate`."""


VALIDATION = "ValidationError"
"""The `kind` of refusals by the shape of the body alone; some engines give these another form."""


class AskError(Exception):
    """The engine refuses; the dialect gives it its shape."""

    def __init__(self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.members: dict[str, object] = {}
        """Further members of the error object."""


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Body(msgspec.Struct, rename={"json_grammar": "json_schema"}):
    """All fields that some engine understands in some API, loosely typed where engines differ."""

    model: str | None = None
    messages: list[dict[str, Any]] | None = None
    system: Any = None
    prompt: Any = None
    input: Any = None
    instructions: str | None = None
    text: Any = None
    text_input: str | None = None
    input_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n_predict: int | None = None
    min_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    stop_sequences: list[str] | None = None
    ignore_eos: bool | None = None
    echo: bool | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    seed: int | None = None
    user: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    grammar: str | None = None
    json_grammar: Any = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    priority: int | None = None
    rid: str | None = None
    request_id: str | None = None
    id_slot: int | None = None
    sampling_params: dict[str, Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    bootstrap_room: int | None = None
    disaggregated_params: dict[str, Any] | None = None


STANDARD_FIELDS = frozenset(
    "model messages system prompt input instructions text max_tokens max_completion_tokens max_output_tokens n stream "
    "stream_options temperature top_p stop stop_sequences echo logprobs top_logprobs seed user tools tool_choice "
    "response_format".split()
)
"""Fields of the public APIs; the others are read only by the engines that list them."""


@dataclass(slots=True, kw_only=True)
class Prompt:
    """One prompt: its text in parts, and its tokens."""

    segments: list[str]
    partial: str = ""
    """The part of the answer that is to be continued."""
    tokens: Sequence[int] = ()


@dataclass(slots=True, kw_only=True)
class ToolCall:
    """A call that the answer must be."""

    name: str
    schema: object


@dataclass(slots=True, kw_only=True)
class Constraint:
    """What the text must keep to: a schema, a pattern or one of some texts."""

    schema: object | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Ask:
    """A generation request, read."""

    api: Api
    model: str | None
    prompts: list[Prompt]
    choices: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    is_stream: bool = False
    includes_usage: bool = False
    stop: tuple[str, ...] = ()
    ignores_eos: bool = False
    echoes: bool = False
    logprobs: int | None = None
    """How many alternatives each token gets; None: no log probabilities."""
    constraint: Constraint | None = None
    tool_call: ToolCall | None = None
    returns_token_ids: bool = False
    body: Body = field(default_factory=Body)
    """For what only one dialect reads."""


def read_body(raw: bytes, extensions: frozenset[str], *, refuses_unknown: bool) -> Body:
    """Decode a body as an engine that knows `extensions` beside the standard fields.

    Raises: AskError 400 for what is no JSON or has values of a wrong type.
    """
    try:
        members = msgspec.json.decode(raw)
    except UNDECODABLE as error:
        raise AskError(400, f"JSON decode error: {error}", kind=VALIDATION) from error
    if not isinstance(members, dict):
        raise AskError(400, "Input should be a valid dictionary or object to extract fields from", kind=VALIDATION)
    named = cast("dict[str, Any]", members)
    known = STANDARD_FIELDS | extensions
    unknown = [name for name in named if name not in known]
    if unknown and refuses_unknown:
        message = f"1 validation error: {unknown[0]}: Extra inputs are not permitted"
        raise AskError(400, message, kind=VALIDATION, param=unknown[0])
    for name in unknown:
        del named[name]
    try:
        return msgspec.convert(named, Body)
    except msgspec.ValidationError as error:
        param = str(error).rpartition("$.")[2].rstrip("`")
        raise AskError(400, f"1 validation error: {error}", kind=VALIDATION, param=param) from error


def read_ask(api: Api, body: Body, *, continues_last_assistant: bool = False) -> Ask:
    """Read what `body` asks for.

    `continues_last_assistant`: a trailing assistant message is continued without being asked for (llama.cpp).
    Raises: AskError 400.
    """
    sampling = body.sampling_params or {}
    limit = _limit(api, body, sampling)
    ask = Ask(
        api=api,
        model=body.model,
        prompts=_PROMPTS[api](body, continues_last_assistant),
        choices=_choices(body, sampling),
        max_tokens=limit,
        min_tokens=body.min_tokens or 0,
        is_stream=bool(body.stream),
        includes_usage=bool(body.stream_options and body.stream_options.include_usage),
        stop=_stop(body, sampling),
        ignores_eos=bool(body.ignore_eos if body.ignore_eos is not None else sampling.get("ignore_eos")),
        echoes=bool(body.echo),
        logprobs=_logprobs(body),
        returns_token_ids=bool(body.return_token_ids),
        body=body,
    )
    _check(body, ask)
    ask.constraint = constraint_of(body)
    ask.tool_call = _forced_tool(body)
    return ask


def _limit(api: Api, body: Body, sampling: Mapping[str, Any]) -> int | None:
    names = (body.n_predict, body.max_completion_tokens, body.max_output_tokens, body.max_tokens)
    limit = next((value for value in names if value is not None), sampling.get("max_new_tokens"))
    if limit is not None and limit < 0 and body.n_predict is not None:
        return None
    if limit is None and api in (Api.COMPLETIONS, Api.GENERATE):
        limit = COMPLETION_TOKENS
    return limit


COMPLETION_TOKENS = 16
"""`max_tokens` of the completions API where none is given. Source: OpenAI's API reference."""


def _check(body: Body, ask: Ask) -> None:
    if ask.max_tokens is not None and ask.max_tokens < 1:
        raise AskError(400, f"max_tokens must be at least 1, got {ask.max_tokens}.", param="max_tokens")
    if body.temperature is not None and not 0 <= body.temperature <= 2:
        raise AskError(400, f"temperature must be non-negative, got {body.temperature}.", param="temperature")
    if body.top_p is not None and not 0 < body.top_p <= 1:
        raise AskError(400, f"top_p must be in (0, 1], got {body.top_p}.", param="top_p")
    if not 1 <= ask.choices <= MAX_CHOICES:
        raise AskError(400, f"n must be between 1 and {MAX_CHOICES}, got {ask.choices}.", param="n")
    if ask.logprobs is not None and not 0 <= ask.logprobs <= MAX_LOGPROBS:
        raise AskError(400, f"logprobs must be between 0 and {MAX_LOGPROBS}, got {ask.logprobs}.", param="logprobs")
    if body.tools is not None and not body.tools:
        raise AskError(400, "tools must not be an empty array.", param="tools")


MAX_CHOICES = 128
"""More of one prompt at once would only be an accident."""

MAX_LOGPROBS = 128
"""More alternatives to each token would only be an accident, and would stop every stream of the engine."""


def _choices(body: Body, sampling: Mapping[str, Any]) -> int:
    asked = body.n if body.n is not None else sampling.get("n")
    return 1 if asked is None else int(asked)


def _stop(body: Body, sampling: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.stop or body.stop_sequences or sampling.get("stop") or ()
    return (stop,) if isinstance(stop, str) else tuple(text for text in stop if text)


def _logprobs(body: Body) -> int | None:
    if body.logprobs is None or body.logprobs is False:
        return None
    return int(body.top_logprobs or 0) if body.logprobs is True else int(body.logprobs)


def constraint_of(body: Body) -> Constraint | None:
    """What the answer must keep to, in any of the forms that this engine reads."""
    wanted = body.response_format or _text_format(body.text)
    if wanted and (kind := wanted.get("type")) not in (None, "text"):
        nested = wanted.get("json_schema")
        if kind == "json_schema" and nested is None and "schema" not in wanted:
            raise AskError(400, "response_format.json_schema is missing", param="response_format")
        schema = nested.get("schema", nested) if isinstance(nested, Mapping) else wanted.get("schema")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if kind == "regex":
            return Constraint(pattern=str(wanted.get("regex") or wanted.get("schema") or ""))
        if kind in ("json_object", "json", "json_schema"):
            return Constraint(schema=cast("object", schema) if schema is not None else {"type": "object"})
        raise AskError(400, f"response_format type {kind!r} is not supported", param="response_format")
    if outputs := body.structured_outputs:
        if choices := outputs.get("choice"):
            return Constraint(choices=tuple(str(choice) for choice in choices))
        if outputs.get("json") is not None or outputs.get("json_object"):
            return Constraint(schema=_document(outputs.get("json")) or {"type": "object"})
        if pattern := outputs.get("regex"):
            return Constraint(pattern=str(pattern))
        return _grammar(outputs.get("grammar"))
    if body.regex is not None:
        return Constraint(pattern=body.regex)
    if body.json_grammar is not None:
        return Constraint(schema=_document(body.json_grammar))
    return _grammar(body.ebnf or body.grammar)


def _grammar(grammar: object) -> Constraint | None:
    """Of a grammar, the first literal text: enough to see that it was applied."""
    if not grammar:
        return None
    parts = str(grammar).split('"')
    if len(parts) < 3:
        raise AskError(400, f"failed to parse grammar: {str(grammar)[:80]}", param="grammar")
    return Constraint(choices=(parts[1],))


def _document(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except UNDECODABLE as error:
        raise AskError(400, f"json_schema is not JSON: {error}", param="json_schema") from error


def _text_format(text: object) -> Mapping[str, Any] | None:
    if not isinstance(text, Mapping):
        return None
    wanted = cast("Mapping[str, Any]", text).get("format")
    return cast("Mapping[str, Any]", wanted) if isinstance(wanted, Mapping) else None


def _forced_tool(body: Body) -> ToolCall | None:
    """The tool that the caller insists on: a named one, or the first where any must be called."""
    choice = body.tool_choice
    if not body.tools or choice in (None, "auto", "none"):
        return None
    wanted: object = None
    if isinstance(choice, dict):
        if choice.get("type") == "auto":
            return None
        named = choice.get("function") or choice
        wanted = cast("Mapping[str, Any]", named).get("name")
    for tool in body.tools:
        function = cast("Mapping[str, Any]", tool.get("function") or tool)
        if wanted is None or function.get("name") == wanted:
            schema = function.get("parameters") or function.get("input_schema") or {"type": "object"}
            return ToolCall(name=str(function.get("name")), schema=schema)
    raise AskError(400, f"The tool {wanted!r} of tool_choice is not in tools.", param="tool_choice")


# --- prompts of each API ---


def chat_prompt(messages: Sequence[Message], *, is_continued: bool) -> Prompt:
    """The prompt of a chat: its messages, and where it is continued the beginning of the answer apart."""
    partial = content_text(messages[-1].get("content")) if is_continued else ""
    segments = chat_segments(messages[:-1] if is_continued else messages)
    return _with_tokens(Prompt(segments=segments, partial=partial), "<|assistant|>\n")


def _with_tokens(prompt: Prompt, answer_mark: str = "") -> Prompt:
    tokens = encode(prompt.segments[0]) if prompt.segments else encode("")
    for segment in (*prompt.segments[1:], answer_mark):
        tokens.extend(encode(segment))
    tokens.extend(encode(prompt.partial))
    prompt.tokens = tokens
    if not tokens:
        raise AskError(400, "The prompt must not be empty.", param="prompt")
    return prompt


def _chat(body: Body, continues_last_assistant: bool) -> list[Prompt]:
    if not body.messages:
        raise AskError(400, "messages must have at least one message", param="messages")
    is_assistant = body.messages[-1].get("role") == "assistant"
    prompt = chat_prompt(body.messages, is_continued=_is_continued(body, is_assistant, continues_last_assistant))
    if body.tools or body.chat_template_kwargs:
        _place_tools(prompt, body)
    return [prompt]


def _place_tools(prompt: Prompt, body: Body) -> None:
    """Chat templates write tools behind the system message, and arguments of their own where they want: here first."""
    leads = 2 if body.messages and body.messages[0].get("role") in ("system", "developer") else 0
    length = sum(len(encode(segment)) for segment in prompt.segments[:leads])
    tokens = encode(_as_text(body.chat_template_kwargs))
    tokens.extend(prompt.tokens[:length])
    tokens.extend(encode(_as_text(body.tools)))
    tokens.extend(prompt.tokens[length:])
    prompt.tokens = tokens


def _as_text(value: object) -> str:
    return msgspec.json.encode(value).decode() if value else ""


def _is_continued(body: Body, is_assistant: bool, continues_last_assistant: bool) -> bool:
    if body.continue_final_message is not None:
        return body.continue_final_message and is_assistant
    return continues_last_assistant and is_assistant


def _completions(body: Body, _: bool) -> list[Prompt]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [text_prompt(prompt)]
    if isinstance(prompt, list) and prompt:
        items = cast("list[Any]", prompt)
        if all(isinstance(item, int) for item in items):
            return [token_prompt(items)]
        if all(isinstance(item, str) for item in items):
            return [text_prompt(item) for item in items]
        if all(isinstance(item, list) for item in items):
            return [token_prompt(cast("list[int]", item)) for item in items if item]
    raise AskError(400, "prompt must be a text, a list of texts or a list of token ids", param="prompt")


def text_prompt(text: str) -> Prompt:
    return _with_tokens(Prompt(segments=[text]))


def token_prompt(tokens: Sequence[int]) -> Prompt:
    if any(not 0 <= token < 2**32 for token in tokens):
        raise AskError(400, "Token id out of vocabulary.", param="prompt")
    return Prompt(segments=[decode(tokens)], tokens=list(tokens))


def _responses(body: Body, _: bool) -> list[Prompt]:
    messages: list[Message] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
    elif isinstance(body.input, list):
        items = cast("list[object]", body.input)
        messages += [cast("Message", item) for item in items if isinstance(item, Mapping)]
    if not messages:
        raise AskError(400, "input must be a text or a list of items", param="input")
    return [chat_prompt(messages, is_continued=False)]


def _anthropic(body: Body, _: bool) -> list[Prompt]:
    if not body.messages:
        raise AskError(400, "messages must have at least one message", param="messages")
    if body.max_tokens is None:
        raise AskError(400, "max_tokens: Field required", param="max_tokens")
    system: list[Message] = [{"role": "system", "content": body.system}] if body.system else []
    messages = [*system, *body.messages]
    return [chat_prompt(messages, is_continued=body.messages[-1].get("role") == "assistant")]


def _generate(body: Body, _: bool) -> list[Prompt]:
    if body.input_ids:
        return [token_prompt(body.input_ids)]
    text = body.text if isinstance(body.text, str) else body.text_input
    if text is None:
        raise AskError(400, "text or input_ids must be given", param="text")
    return [text_prompt(text)]


_PROMPTS: Mapping[Api, Callable[[Body, bool], list[Prompt]]] = {
    Api.CHAT: _chat,
    Api.COMPLETIONS: _completions,
    Api.RESPONSES: _responses,
    Api.MESSAGES: _anthropic,
    Api.GENERATE: _generate,
}
