"""Answers of the engines' own generate APIs: SGLang's `/generate`, and Triton's generate extension.

Source: sglang/srt/managers/tokenizer_manager.py; the generate extension of triton-inference-server/server. Both hold
one prompt's one answer; SGLang's events repeat the whole text so far, Triton's hold what is new.
"""

from collections.abc import Mapping, Sequence

from headrace.engines.simulated.formats import DONE, Finished, Tally, encode_json


class SglangGenerateFormat:
    """`{"text", "output_ids", "meta_info"}`."""

    def __init__(self, answer_id: str, prompt_tokens: int) -> None:
        self._id = answer_id
        self._prompt_tokens = prompt_tokens
        self._text = ""
        self._tokens = 0

    def opening(self, choice: int) -> bytes:
        return b""

    def around(self, choice: int) -> tuple[bytes, bytes]:
        raise NotImplementedError("every event repeats the whole text")

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        self._text += text
        self._tokens += 1
        meta = self._meta(None, self._prompt_tokens, self._tokens, 0)
        return b"data: " + encode_json({"text": self._text, "meta_info": meta}) + b"\n\n"

    def _meta(self, reason: str | None, prompt: int, completion: int, cached: int) -> dict[str, object]:
        return {
            "id": self._id,
            "finish_reason": None if reason is None else {"type": reason},
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "cached_tokens": cached,
        }

    def closing(self, choice: int, text: str, reason: str, extra: Mapping[str, object], tally: Tally) -> bytes:
        self._text += text
        self._tokens += 1
        meta = self._meta(reason, self._prompt_tokens, self._tokens, 0)
        return b"data: " + encode_json({"text": self._text, "meta_info": meta}) + b"\n\n"

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        return DONE

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        done = finished[0]
        meta = self._meta(done.reason, tally.prompt_tokens, tally.completion_tokens, tally.cached_tokens)
        return {"text": done.text, "output_ids": done.tokens, "meta_info": meta, **extra}


class TritonGenerateFormat:
    """`{"text_output", "model_name", "model_version"}`; a stream has no end mark."""

    def __init__(self, model: str) -> None:
        self._base = {"model_name": model, "model_version": "1"}

    def opening(self, choice: int) -> bytes:
        return b""

    def around(self, choice: int) -> tuple[bytes, bytes]:
        raise NotImplementedError("few ask for it")

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        return b"data: " + encode_json({**self._base, "text_output": text}) + b"\n\n"

    def closing(self, choice: int, text: str, reason: str, extra: Mapping[str, object], tally: Tally) -> bytes:
        return self.delta(choice, text, ()) if text else b""

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        return b""

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]:
        return {**self._base, "text_output": finished[0].text}
