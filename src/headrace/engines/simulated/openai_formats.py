"""OpenAI's chat and completions APIs, whole and in chunks; what differs between engines is in `Shape`.

A stream's chunk is `prefix + text + suffix`, made once per choice, since a thousand streams get one at a time each.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engines.simulated.ask import Ask
from headrace.engines.simulated.formats import DONE, ChunkShape, Finished, Shape, Tally, encode_json

_MARK = "\x00text\x00"
_MARK_JSON = encode_json(_MARK)


class _Chunks:
    """What both share: chunks cut around the text, and usage at the end."""

    object_name = ""

    def __init__(self, ask: Ask, shape: Shape, own: ChunkShape, *, answer_id: str, model: str) -> None:
        created = int(time.time())  # noqa: TID251 # a timestamp in an answer, as engines give it
        self._ask = ask
        self._shape = shape
        self._own = own
        self._base = {"id": answer_id, "object": self.object_name, "created": created, "model": model}
        self._cuts: dict[int, tuple[bytes, bytes]] = {}

    def _event(self, choices: list[dict[str, object]], more: Mapping[str, object] | None = None) -> bytes:
        body = {**self._base, "choices": choices, **self._own.chunk, **(more or {})}
        return b"data: " + encode_json(body) + b"\n\n"

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        if self._ask.logprobs is not None:
            return self._event([self._delta_choice(choice, text, self._logprobs(pieces), None)])
        cut = self.around(choice)
        return cut[0][:-1] + encode_json(text) + cut[1][1:]

    def around(self, choice: int) -> tuple[bytes, bytes]:
        cut = self._cuts.get(choice)
        if cut is None:
            event = self._event([self._delta_choice(choice, _MARK, None, None)])
            before, _, after = event.partition(_MARK_JSON)
            cut = self._cuts[choice] = (before + b'"', b'"' + after)
        return cut

    def closing(self, choice: int, text: str, reason: str, extra: Mapping[str, object], tally: Tally) -> bytes:
        last: Mapping[str, object] = self._own.last_chunk if self._is_last(choice) else {}
        if self._is_last(choice):
            last = {**last, **self._timings(tally), **({"usage": tally.usage} if self._own.usage_rides else {})}
        reason = self._reason(reason)
        if self._own.finish_rides:
            return self._event([{**self._delta_choice(choice, text, None, reason), **extra}], last)
        text_event = self.delta(choice, text, (text,)) if text else b""
        return text_event + self._event([{**self._delta_choice(choice, "", None, reason), **extra}], last)

    def _is_last(self, choice: int) -> bool:
        """Whether nothing but the end mark follows the end of this choice."""
        is_only = len(self._ask.prompts) * self._ask.choices == 1
        return is_only and not self._has_usage_event

    @property
    def _has_usage_event(self) -> bool:
        return self._ask.includes_usage and not self._own.usage_rides

    def _reason(self, reason: str) -> str:
        return reason

    def _delta_choice(self, choice: int, text: str, logprobs: object, reason: str | None) -> dict[str, object]:
        """A streamed choice; the one with a reason is the last."""
        raise NotImplementedError

    def _logprobs(self, pieces: Sequence[str]) -> object:
        return {"content": [_logprob_entry(piece, self._ask.logprobs or 0) for piece in pieces]}

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        if not self._has_usage_event:
            return DONE
        return self._event([], {"usage": tally.usage, **self._own.last_chunk, **self._timings(tally), **extra}) + DONE

    def _timings(self, tally: Tally) -> dict[str, object]:
        return {"timings": tally.timings} if self._shape.has_timings else {}

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        choices = [self._whole_choice(index, done) for index, done in enumerate(finished)]
        base = {**self._base, "object": self.object_name.removesuffix(".chunk"), "choices": choices}
        return {**base, **self._own.whole, "usage": tally.usage, **self._timings(tally), **extra}

    def _whole_choice(self, index: int, done: Finished) -> dict[str, object]:
        raise NotImplementedError

    def _whole_members(self, done: Finished) -> dict[str, object]:
        ids: dict[str, object] = {"token_ids": done.tokens} if self._ask.returns_token_ids else {}
        return {**self._own.final_choice, **self._own.whole_choice, **ids, **done.extra}


class ChatFormat(_Chunks):
    """`chat.completion` and its chunks."""

    object_name = "chat.completion.chunk"

    def __init__(self, ask: Ask, shape: Shape, *, answer_id: str, model: str) -> None:
        super().__init__(ask, shape, shape.chat, answer_id=answer_id, model=model)

    @property
    def _call_id(self) -> str:
        return f"{self._shape.tool_id_prefix}{self._base['id']}"

    def opening(self, choice: int) -> bytes:
        delta = {"role": "assistant", "content": self._shape.role_content, **self._own.delta}
        begun = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": None, **self._own.first_choice}
        opened = self._event([begun], self._own.first_chunk)
        if self._ask.tool_call is None:
            return opened
        function = {"name": self._ask.tool_call.name, "arguments": ""}
        call = {"index": 0, "id": self._call_id, "type": "function", "function": function}
        return opened + self._event([self._choice(choice, {"content": None, "tool_calls": [call]}, None, None)])

    def _choice(self, choice: int, delta: dict[str, object], logprobs: object, reason: str | None) -> dict[str, object]:
        made = {"index": choice, "delta": {**delta, **self._own.delta}, "logprobs": logprobs, "finish_reason": reason}
        return {**made, **(self._own.final_choice if reason else {}), **self._own.choice}

    def _delta_choice(self, choice: int, text: str, logprobs: object, reason: str | None) -> dict[str, object]:
        if not text:
            delta: dict[str, object] = {}
        elif self._ask.tool_call is not None:
            delta = {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        else:
            delta = {"content": text}
        return self._choice(choice, delta, logprobs, reason)

    def _reason(self, reason: str) -> str:
        return "tool_calls" if self._ask.tool_call is not None and reason == "stop" else reason

    def _whole_choice(self, index: int, done: Finished) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": done.text, **self._own.message}
        if self._ask.tool_call is not None:
            function = {"name": self._ask.tool_call.name, "arguments": done.text}
            call = {"id": self._call_id, "type": "function", "function": function}
            message |= {"content": self._shape.tool_content, "tool_calls": [call]}
        entries = None if self._ask.logprobs is None else self._logprobs(_pieces(done.text))
        choice = {"index": index, "message": message, "logprobs": entries, "finish_reason": self._reason(done.reason)}
        return {**choice, **self._whole_members(done)}


class CompletionFormat(_Chunks):
    """`text_completion`, whole and in chunks."""

    object_name = "text_completion"

    def __init__(self, ask: Ask, shape: Shape, *, answer_id: str, model: str) -> None:
        super().__init__(ask, shape, shape.completion, answer_id=answer_id, model=model)

    def _prompt_text(self, choice: int) -> str:
        return "".join(self._ask.prompts[choice // self._ask.choices].segments) if self._ask.echoes else ""

    def opening(self, choice: int) -> bytes:
        echoed = self._prompt_text(choice)
        return self.delta(choice, echoed, ()) if echoed else b""

    def _delta_choice(self, choice: int, text: str, logprobs: object, reason: str | None) -> dict[str, object]:
        made = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return {**made, **(self._own.final_choice if reason else {}), **self._own.choice}

    def _logprobs(self, pieces: Sequence[str]) -> object:
        entries = [_logprob_entry(piece, self._ask.logprobs or 0) for piece in pieces]
        tops = [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in entries]
        return {"tokens": list(pieces), "token_logprobs": [entry["logprob"] for entry in entries], "top_logprobs": tops}

    def _whole_choice(self, index: int, done: Finished) -> dict[str, object]:
        entries = None if self._ask.logprobs is None else self._logprobs(_pieces(done.text))
        text = self._prompt_text(index) + done.text
        choice = {"index": index, "text": text, "logprobs": entries, "finish_reason": done.reason}
        prompt = self._ask.prompts[index // self._ask.choices]
        ids = {"prompt_token_ids": list(prompt.tokens)} if self._ask.returns_token_ids else {}
        return {**choice, **self._whole_members(done), **ids}


def _pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def _logprob_entry(piece: str, alternatives: int) -> dict[str, Any]:
    """The token was certain by nine tenths; what else it might have been is made up, in falling order."""
    tops = [{"token": piece, "logprob": -0.105, "bytes": list(piece.encode())}]
    tops += [{"token": f"~{i}", "logprob": -2.4 - i, "bytes": list(f"~{i}".encode())} for i in range(1, alternatives)]
    return {**tops[0], "top_logprobs": tops[:alternatives]}
