"""The APIs whose events have names: OpenAI's Responses and Anthropic's Messages.

Source: their API references; recordings of llama.cpp, vLLM 0.32.0 and SGLang 0.5.23.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.engines.simulated.ask import Ask
from headrace.engines.simulated.formats import Finished, Tally, encode_json

_MARK = "\x00text\x00"
_MARK_JSON = encode_json(_MARK)


class ResponsesFormat:
    """OpenAI's Responses API."""

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
        return self._event("response.output_text.delta", **self._place, content_index=0, delta=text, logprobs=[])

    def closing(self, choice: int, text: str, reason: str, extra: Mapping[str, object], tally: Tally) -> bytes:
        self._reason = reason
        last = self.delta(choice, text, ()) if text else b""
        text = "".join(self._text)
        return (
            last
            + self._event("response.output_text.done", **self._place, content_index=0, text=text)
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
    """Anthropic's Messages API."""

    def __init__(self, ask: Ask, answer_id: str, model: str, *, repeats_input_usage: bool) -> None:
        """`repeats_input_usage`: the last usage of a stream counts the prompt again (vLLM)."""
        self._ask = ask
        self._repeats_input_usage = repeats_input_usage
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

    def closing(self, choice: int, text: str, reason: str, extra: Mapping[str, object], tally: Tally) -> bytes:
        self._reason = reason
        last = self.delta(choice, text, ()) if text else b""
        return last + self._event("content_block_stop", index=0)

    def _stop_reason(self, reason: str) -> str:
        if self._ask.tool_call is not None and reason == "stop":
            return "tool_use"
        return {"stop": "end_turn", "length": "max_tokens"}.get(reason, reason)

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        delta = {"stop_reason": self._stop_reason(self._reason), "stop_sequence": None}
        usage = self._usage(tally) if self._repeats_input_usage else {"output_tokens": tally.completion_tokens}
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
