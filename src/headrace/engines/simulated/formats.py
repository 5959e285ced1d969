"""How answers look on the wire: whole and streamed, for each API. What differs between engines is in `Shape`.

A stream's chunk is `prefix + text + suffix`, made once per choice, since a thousand streams get one at a time each.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from headrace.engines.simulated.ask import Api, Ask

encode_json = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"
_MARK = "\x00text\x00"
_MARK_JSON = encode_json(_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one engine's answers have that another's have not."""

    chunk_members: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further members of every chunk and answer, such as `system_fingerprint`."""
    choice_members: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further members of every streamed choice."""
    role_content: str | None = ""
    """`delta.content` of the first chunk, beside the role."""
    finish_delta: Mapping[str, object] = field(default_factory=dict[str, object])
    """`delta` of the chunk with the finish reason."""
    final_choice_members: Mapping[str, object] = field(default_factory=dict[str, object])
    message_members: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further members of a whole answer's message."""
    has_timings: bool = False
    """llama.cpp's `timings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What an answer cost, when it ends."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    usage: dict[str, object]
    """As the engine says it in the OpenAI APIs."""
    prefill_s: float = 0.0
    decode_s: float = 0.0

    @property
    def timings(self) -> dict[str, object]:
        computed = self.prompt_tokens - self.cached_tokens
        prompt_ms, predicted_ms = self.prefill_s * 1e3, self.decode_s * 1e3
        return {
            "cache_n": self.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": round(prompt_ms, 3),
            "prompt_per_token_ms": prompt_ms / max(computed, 1),
            "prompt_per_second": computed / self.prefill_s if self.prefill_s else 0.0,
            "predicted_n": self.completion_tokens,
            "predicted_ms": round(predicted_ms, 3),
            "predicted_per_token_ms": predicted_ms / max(self.completion_tokens, 1),
            "predicted_per_second": self.completion_tokens / self.decode_s if self.decode_s else 0.0,
        }


@dataclass(slots=True, kw_only=True)
class Finished:
    """One choice of a whole answer."""

    text: str
    reason: str
    tokens: list[int]
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Members of the choice that a transfer protocol adds."""


class Format(Protocol):
    """One API's answers to one request."""

    def opening(self, choice: int) -> bytes:
        """Events before a choice's first token."""
        ...

    def around(self, choice: int) -> tuple[bytes, bytes]:
        """What stands before and after a text that needs no escaping, in the event for it."""
        ...

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        """The event for new text, made of `pieces`, one a token."""
        ...

    def closing(self, choice: int, reason: str, extra: Mapping[str, object]) -> bytes:
        """Events that end one choice."""
        ...

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        """Events that end the stream."""
        ...

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]: ...


def format_of(ask: Ask, shape: Shape, *, answer_id: str, model: str) -> Format:
    """The format of the API that was asked."""
    created = int(time.time())  # noqa: TID251 # a timestamp in an answer, as engines give it
    match ask.api:
        case Api.CHAT:
            return ChatFormat(ask, shape, answer_id, model, created)
        case Api.RESPONSES:
            return ResponsesFormat(ask, answer_id, model, created)
        case Api.MESSAGES:
            return MessagesFormat(ask, answer_id, model)
        case _:
            return CompletionFormat(ask, shape, answer_id, model, created)


class _Chunks:
    """What chat and completions share: chunks cut around the text, and usage at the end."""

    object_name = ""

    def __init__(self, ask: Ask, shape: Shape, answer_id: str, model: str, created: int) -> None:
        self._ask = ask
        self._shape = shape
        self._base = {"id": answer_id, "object": self.object_name, "created": created, "model": model}
        self._cuts: dict[int, tuple[bytes, bytes]] = {}

    def _event(self, choices: list[dict[str, object]], **more: object) -> bytes:
        return (
            b"data: " + encode_json({**self._base, "choices": choices, **self._shape.chunk_members, **more}) + b"\n\n"
        )

    def _choice(self, choice: int, **members: object) -> dict[str, object]:
        return {"index": choice, **members, **self._shape.choice_members}

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        if self._ask.logprobs is not None:
            return self._event([self._delta_choice(choice, text, self._logprobs(pieces))])
        cut = self.around(choice)
        return cut[0][:-1] + encode_json(text) + cut[1][1:]

    def around(self, choice: int) -> tuple[bytes, bytes]:
        cut = self._cuts.get(choice)
        if cut is None:
            before, _, after = self._event([self._delta_choice(choice, _MARK, None)]).partition(_MARK_JSON)
            cut = self._cuts[choice] = (before + b'"', b'"' + after)
        return cut

    def _delta_choice(self, choice: int, text: str, logprobs: object) -> dict[str, object]:
        raise NotImplementedError

    def _logprobs(self, pieces: Sequence[str]) -> object:
        return {"content": [_logprob_entry(piece, self._ask.logprobs or 0) for piece in pieces]}

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        if not self._ask.includes_usage:
            return DONE
        more: dict[str, object] = {"timings": tally.timings} if self._shape.has_timings else {}
        return self._event([], usage=tally.usage, **more, **extra) + DONE


class ChatFormat(_Chunks):
    """`chat.completion` and its chunks."""

    object_name = "chat.completion.chunk"

    def opening(self, choice: int) -> bytes:
        delta = {"role": "assistant", "content": self._shape.role_content}
        opened = self._event([self._choice(choice, delta=delta, logprobs=None, finish_reason=None)])
        if self._ask.tool_call is None:
            return opened
        call = {
            "index": 0,
            "id": f"call_{self._base['id']}",
            "type": "function",
            "function": {"name": self._ask.tool_call.name, "arguments": ""},
        }
        begun = self._choice(choice, delta={"tool_calls": [call]}, logprobs=None, finish_reason=None)
        return opened + self._event([begun])

    def _delta_choice(self, choice: int, text: str, logprobs: object) -> dict[str, object]:
        if self._ask.tool_call is not None:
            delta: dict[str, object] = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        else:
            delta = {"content": text}
        return self._choice(choice, delta=delta, logprobs=logprobs, finish_reason=None)

    def closing(self, choice: int, reason: str, extra: Mapping[str, object]) -> bytes:
        members = {"delta": self._shape.finish_delta, "logprobs": None, "finish_reason": self._reason(reason)}
        return self._event([self._choice(choice, **members, **self._shape.final_choice_members, **extra)])

    def _reason(self, reason: str) -> str:
        return "tool_calls" if self._ask.tool_call is not None and reason == "stop" else reason

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        choices = [self._whole_choice(index, done) for index, done in enumerate(finished)]
        more: dict[str, object] = {"timings": tally.timings} if self._shape.has_timings else {}
        base = {**self._base, "object": "chat.completion"}
        return {**base, "choices": choices, **self._shape.chunk_members, "usage": tally.usage, **more, **extra}

    def _whole_choice(self, index: int, done: Finished) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": done.text, **self._shape.message_members}
        if self._ask.tool_call is not None:
            function = {"name": self._ask.tool_call.name, "arguments": done.text}
            call = {"id": f"call_{self._base['id']}", "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [call]}
        entries = None if self._ask.logprobs is None else self._logprobs(_pieces(done.text))
        choice: dict[str, object] = {"index": index, "message": message, "logprobs": entries}
        if self._ask.returns_token_ids:
            choice["token_ids"] = done.tokens
        return {
            **choice,
            "finish_reason": self._reason(done.reason),
            **self._shape.final_choice_members,
            **done.extra,
        }


class CompletionFormat(_Chunks):
    """`text_completion`, whole and in chunks."""

    object_name = "text_completion"

    def opening(self, choice: int) -> bytes:
        if not self._ask.echoes:
            return b""
        prompt = self._ask.prompts[choice // self._ask.choices]
        return self.delta(choice, "".join(prompt.segments), ())

    def _delta_choice(self, choice: int, text: str, logprobs: object) -> dict[str, object]:
        return self._choice(choice, text=text, logprobs=logprobs, finish_reason=None)

    def _logprobs(self, pieces: Sequence[str]) -> object:
        entries = [_logprob_entry(piece, self._ask.logprobs or 0) for piece in pieces]
        tops = [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in entries]
        return {"tokens": list(pieces), "token_logprobs": [entry["logprob"] for entry in entries], "top_logprobs": tops}

    def closing(self, choice: int, reason: str, extra: Mapping[str, object]) -> bytes:
        return self._event([self._choice(choice, text="", logprobs=None, finish_reason=reason, **extra)])

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        choices: list[dict[str, object]] = []
        for index, done in enumerate(finished):
            echoed = "".join(self._ask.prompts[index // self._ask.choices].segments) if self._ask.echoes else ""
            entries = None if self._ask.logprobs is None else self._logprobs(_pieces(done.text))
            choice: dict[str, object] = {"index": index, "text": echoed + done.text, "logprobs": entries}
            if self._ask.returns_token_ids:
                choice["token_ids"] = done.tokens
            choices.append({**choice, "finish_reason": done.reason, **done.extra})
        more: dict[str, object] = {"timings": tally.timings} if self._shape.has_timings else {}
        return {**self._base, "choices": choices, **self._shape.chunk_members, "usage": tally.usage, **more, **extra}


class ResponsesFormat:
    """OpenAI's Responses API. Source: OpenAI's API reference; a recording of llama.cpp."""

    def __init__(self, ask: Ask, answer_id: str, model: str, created: int) -> None:
        self._ask = ask
        self._base = {"id": answer_id, "object": "response", "created_at": created, "model": model}
        self._item_id = f"msg_{answer_id}"
        self._text: list[str] = []
        self._reason = "stop"
        self._number = -1

    def _event(self, kind: str, **members: object) -> bytes:
        self._number += 1
        body = {"type": kind, "sequence_number": self._number, **members}
        return b"event: " + kind.encode() + b"\ndata: " + encode_json(body) + b"\n\n"

    @property
    def _place(self) -> dict[str, object]:
        return {"item_id": self._item_id, "output_index": 0}

    def opening(self, choice: int) -> bytes:
        begun: dict[str, object] = {**self._base, "status": "in_progress", "output": ()}
        item = {**self._item(""), "status": "in_progress", "content": ()}
        part = _output_text("")
        return (
            self._event("response.created", response=begun)
            + self._event("response.in_progress", response=begun)
            + self._event("response.output_item.added", output_index=0, item=item)
            + self._event("response.content_part.added", **self._place, content_index=0, part=part)
        )

    def around(self, choice: int) -> tuple[bytes, bytes]:
        raise NotImplementedError("an event of the Responses API has a number of its own")

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        self._text.append(text)
        return self._event("response.output_text.delta", **self._place, content_index=0, delta=text)

    def closing(self, choice: int, reason: str, extra: Mapping[str, object]) -> bytes:
        self._reason = reason
        text = "".join(self._text)
        return (
            self._event("response.output_text.done", **self._place, content_index=0, text=text)
            + self._event("response.content_part.done", **self._place, content_index=0, part=_output_text(text))
            + self._event("response.output_item.done", output_index=0, item=self._item(text))
        )

    def _item(self, text: str) -> dict[str, object]:
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [_output_text(text)],
        }

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        kind = "response.completed" if self._reason == "stop" else "response.incomplete"
        return self._event(kind, response=self._response("".join(self._text), self._reason, tally))

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        return {**self._response(finished[0].text, finished[0].reason, tally), **extra}

    def _response(self, text: str, reason: str, tally: Tally) -> dict[str, object]:
        is_whole = reason == "stop"
        return {
            **self._base,
            "status": "completed" if is_whole else "incomplete",
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "output": [self._item(text)],
            "usage": {
                "input_tokens": tally.prompt_tokens,
                "output_tokens": tally.completion_tokens,
                "total_tokens": tally.prompt_tokens + tally.completion_tokens,
                "input_tokens_details": {"cached_tokens": tally.cached_tokens},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }


class MessagesFormat:
    """Anthropic's Messages API. Source: Anthropic's API reference; a recording of llama.cpp."""

    def __init__(self, ask: Ask, answer_id: str, model: str) -> None:
        self._ask = ask
        self._base = {"id": answer_id, "type": "message", "role": "assistant", "model": model}
        self._reason = "stop"

    @staticmethod
    def _event(kind: str, **members: object) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + encode_json({"type": kind, **members}) + b"\n\n"

    def opening(self, choice: int) -> bytes:
        usage = {"input_tokens": len(self._ask.prompts[0].tokens), "output_tokens": 0}
        message = {**self._base, "content": (), "stop_reason": None, "stop_sequence": None, "usage": usage}
        return self._event("message_start", message=message) + self._event(
            "content_block_start", index=0, content_block=self._block("")
        )

    def _block(self, text: str) -> dict[str, object]:
        if self._ask.tool_call is None:
            return {"type": "text", "text": text}
        made: Any = msgspec.json.decode(text) if text else {}
        return {"type": "tool_use", "id": f"toolu_{self._base['id']}", "name": self._ask.tool_call.name, "input": made}

    def around(self, choice: int) -> tuple[bytes, bytes]:
        before, _, after = self.delta(choice, _MARK, ()).partition(_MARK_JSON)
        return before + b'"', b'"' + after

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        if self._ask.tool_call is not None:
            return self._event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": text})
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def closing(self, choice: int, reason: str, extra: Mapping[str, object]) -> bytes:
        self._reason = reason
        return self._event("content_block_stop", index=0)

    def _stop_reason(self, reason: str) -> str:
        if self._ask.tool_call is not None and reason == "stop":
            return "tool_use"
        return {"stop": "end_turn", "length": "max_tokens"}.get(reason, reason)

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        delta = {"stop_reason": self._stop_reason(self._reason), "stop_sequence": None}
        usage = self._usage(tally)
        return self._event("message_delta", delta=delta, usage=usage) + self._event("message_stop")

    @staticmethod
    def _usage(tally: Tally) -> dict[str, object]:
        return {
            "input_tokens": tally.prompt_tokens - tally.cached_tokens,
            "cache_read_input_tokens": tally.cached_tokens,
            "output_tokens": tally.completion_tokens,
        }

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        return {
            **self._base,
            "content": [self._block(finished[0].text)],
            "stop_reason": self._stop_reason(finished[0].reason),
            "stop_sequence": None,
            "usage": self._usage(tally),
            **extra,
        }


def _output_text(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def _logprob_entry(piece: str, alternatives: int) -> dict[str, Any]:
    """The token was certain by nine tenths; what else it might have been is made up, in falling order."""
    tops = [{"token": piece, "logprob": -0.105, "bytes": list(piece.encode())}]
    tops += [{"token": f"~{i}", "logprob": -2.4 - i, "bytes": list(f"~{i}".encode())} for i in range(1, alternatives)]
    return {**tops[0], "top_logprobs": tops[:alternatives]}
