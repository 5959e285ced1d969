"""`headrace chat`: talk to a model through the gateway, as any caller would."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

import httpx
import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import EXIT_USAGE, console, emit, fail
from headrace.domain.errors import ErrorCode
from headrace.domain.operator_error import OperatorError, UnknownNameError
from headrace.settings import Settings, load_settings
from headrace.wiring.first_keys import first_key_file

app = verb_app()
KEY_VARIABLE = "HEADRACE_API_KEY"
CONNECT_S = 10.0

Message = dict[str, str]
PromptArgument = Annotated[
    str | None, typer.Argument(help="What to say; without it, stdin, or a dialogue on a terminal.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="MODEL", help="Default: the first that chats.")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", "-k", envvar=KEY_VARIABLE, help="API key; default: the first start's, where it is kept."),
]
SystemOption = Annotated[str | None, typer.Option("--system", help="A system message.")]
MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Bound of each answer, tokens.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer. Observer: this client."""

    model: str
    content: str
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    ttft_s: float | None
    """Request sent to first content."""
    e2e_s: float
    tokens_per_s: float | None
    """Output tokens after the first, over the time after the first; None below two tokens."""


@app.command(epilog="Example: headrace chat 'Say hello.'")
def chat(
    prompt: PromptArgument = None,
    model: ModelOption = None,
    key: KeyOption = None,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk to a model through the gateway; shows tokens per second and time to first token."""
    settings = load_settings()
    supervisor = get_supervisor(settings)
    session = _Session(
        url=supervisor.inference_url,
        key=key or _kept_key(settings),
        model=model or _choose_model(settings),
        max_tokens=max_tokens,
        is_silent=as_json,
    )
    if system:
        session.messages.append({"role": "system", "content": system})
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read().strip()
        if not prompt:
            fail("nothing to say: give a prompt, or text on stdin", code=EXIT_USAGE)
    if prompt is not None:
        turn = session.say(prompt)
        emit("chat", turn, as_json=as_json)
        return
    _converse(session)


def _converse(session: "_Session") -> None:
    console(stderr=True).print(f"{session.model} at {session.url}; Ctrl-D ends", style="dim")
    while True:
        try:
            text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            typer.echo()
            return
        if text:
            try:
                session.say(text)
            except KeyboardInterrupt:
                typer.echo(" (cancelled)")


class _Session:
    """A dialogue: what was said so far goes along with each request."""

    def __init__(self, *, url: str, key: str, model: str, max_tokens: int | None, is_silent: bool) -> None:
        self.url, self.model = url, model
        self.messages: list[Message] = []
        self._key, self._max_tokens, self._is_silent = key, max_tokens, is_silent

    def say(self, text: str) -> Turn:
        """Send one message and stream the answer to stdout."""
        messages = [*self.messages, {"role": "user", "content": text}]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._max_tokens is not None:
            body["max_tokens"] = self._max_tokens
        turn = self._stream(body)
        self.messages = [*messages, {"role": "assistant", "content": turn.content}]
        if not self._is_silent:
            typer.echo()
            if sys.stdout.isatty():
                console(stderr=True).print(_figures(turn), style="dim")
        return turn

    def _stream(self, body: dict[str, Any]) -> Turn:
        sent_mono_s = time.monotonic()
        first_mono_s: float | None = None
        content: str = ""
        finish: str | None = None
        usage: dict[str, int] = {}
        for event in self._events(body):
            usage = event.usage or usage
            finish = event.finish_reason or finish
            if event.content:
                first_mono_s = first_mono_s or time.monotonic()
                content += event.content
                if not self._is_silent:
                    sys.stdout.write(event.content)
                    sys.stdout.flush()
        end_mono_s = time.monotonic()
        output_tokens = usage.get("completion_tokens")
        rate = None
        if first_mono_s is not None and output_tokens is not None and output_tokens > 1 and end_mono_s > first_mono_s:
            rate = (output_tokens - 1) / (end_mono_s - first_mono_s)
        return Turn(
            model=self.model,
            content=content,
            finish_reason=finish,
            input_tokens=usage.get("prompt_tokens"),
            output_tokens=output_tokens,
            ttft_s=None if first_mono_s is None else first_mono_s - sent_mono_s,
            e2e_s=end_mono_s - sent_mono_s,
            tokens_per_s=rate,
        )

    def _events(self, body: dict[str, Any]) -> Iterator["_Event"]:
        """Yield the answer's events. Raises: OperatorError for an error answer or a broken stream."""
        headers = {"authorization": f"Bearer {self._key}"}
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        try:
            # The certificate is this instance's own affair: `--key` goes to the address in our own state folder.
            with (
                httpx.Client(
                    trust_env=False, timeout=timeout, verify=not self.url.startswith("https://127.")
                ) as client,
                client.stream("POST", f"{self.url}/v1/chat/completions", json=body, headers=headers) as response,
            ):
                if response.status_code != 200:
                    raise _refusal(response.read(), response.status_code)
                for line in response.iter_lines():
                    payload = line.removeprefix("data:").strip()
                    if not line.startswith("data:") or payload == "[DONE]":
                        continue
                    event = _read_json(payload)
                    if "error" in event:
                        raise OperatorError(_error_of(payload.encode(), response.status_code))
                    yield _read_event(event)
        except httpx.TransportError as error:
            raise OperatorError(f"the gateway at {self.url} broke the connection: {error}") from error


def _read_json(payload: str) -> dict[str, Any]:
    try:
        event: object = json.loads(payload)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise OperatorError("the engine sent an event that is no JSON object")
    return cast("dict[str, Any]", event)


@dataclass(frozen=True, slots=True)
class _Event:
    """What of one chunk counts here."""

    content: str
    finish_reason: str | None
    usage: dict[str, int]


def _read_event(event: dict[str, Any]) -> _Event:
    choices = cast("list[dict[str, Any]]", event.get("choices") or [])
    choice = choices[0] if choices else {}
    delta = cast("dict[str, Any]", choice.get("delta") or {})
    return _Event(
        str(delta.get("content") or ""), choice.get("finish_reason"), cast("dict[str, int]", event.get("usage") or {})
    )


def _figures(turn: Turn) -> str:
    ttft = "not measured" if turn.ttft_s is None else f"{turn.ttft_s * 1000:.0f} ms"
    rate = "not measured" if turn.tokens_per_s is None else f"{turn.tokens_per_s:.1f} tokens/s"
    tokens = "? tokens" if turn.output_tokens is None else f"{turn.output_tokens} tokens"
    return f"[{tokens}, {rate}, first after {ttft}, {turn.e2e_s:.1f} s in all; observer: this client]"


def _choose_model(settings: Settings) -> str:
    with ControlClient(settings) as client:
        status = client.status()
    served = [model for model in status.models if model.pools and not model.embeddings]
    if not served:
        fail("no declared model chats", hint="`headrace models` lists them.")
    return next((model.model for model in served if model.ready_endpoints), served[0].model)


def _kept_key(settings: Settings) -> str:
    try:
        return first_key_file(settings).read_text().strip()
    except OSError:
        fail(
            "no API key",
            hint=f"Give --key or set {KEY_VARIABLE}; `headrace keys create` makes one. Kept only for the built-in "
            "declaration on loopback.",
        )


def _refusal(body: bytes, status: int) -> OperatorError:
    """Why the gateway does not answer; a model that there is none of is a slip of whoever typed it."""
    said = _error_of(body, status)
    is_unknown = said.startswith(f"{ErrorCode.MODEL_NOT_FOUND.value}:")
    return UnknownNameError(said) if is_unknown else OperatorError(said)


def _error_of(body: bytes, status: int) -> str:
    try:
        error = cast("dict[str, Any]", json.loads(body)["error"])
        return f"{error.get('code') or status}: {error.get('message')}"
    except (ValueError, RecursionError, KeyError, TypeError):
        return f"status {status}: {body[:200].decode(errors='replace')}"
