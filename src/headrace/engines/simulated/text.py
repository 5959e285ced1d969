"""The simulated engine's language: a tokenizer of four bytes a token, and answers that are a function of the prompt.

Word k of an answer depends on nothing but the model's name, the prompt and k, so that a duplicated, lost or reordered
token shows. Tests compare with `expected_text`.
"""

import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import cast

TOKEN_BYTES = 4
"""Bytes of text per token: what English averages in the vocabularies of current models."""

WORDS_A_HASH = 32
"""A BLAKE2b digest has 64 bytes, two for each word."""

_CONSONANTS = "bcdfghjklmnprstvwxz"
_VOWELS = "aeiou"
WORDS = tuple(f" {first}{vowel}{last}" for first in _CONSONANTS for vowel in _VOWELS for last in _CONSONANTS)
"""1,805 words of one token each, a space before."""

Message = Mapping[str, object]


def encode(text: str) -> "array[int]":
    """Tokens of `text`: four bytes of UTF-8 each, the last one filled with zeros; a token's id is their number."""
    raw = text.encode("utf-8", "replace")
    tokens = array("I", raw + b"\0" * (-len(raw) % TOKEN_BYTES))
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def decode(tokens: Sequence[int]) -> str:
    """The text of tokens; ids that no text has become the replacement character."""
    raw = b"".join((token & 0xFFFFFFFF).to_bytes(TOKEN_BYTES, "little").rstrip(b"\0") for token in tokens)
    return raw.decode("utf-8", "replace")


def chat_segments(messages: Sequence[Message]) -> list[str]:
    """The parts of a chat's prompt, each tokenized by itself, so that equal beginnings give equal tokens."""
    segments: list[str] = []
    for message in messages:
        segments.append(f"<|{message.get('role') or 'user'}|>\n")
        segments.append(content_text(message.get("content")))
        if message.get("tool_calls"):
            segments.append(str(message["tool_calls"]))
    return segments


def content_text(content: object) -> str:
    """A message's text: as it is, or its text parts joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        items = cast("Sequence[object]", content)
        parts = [cast("Message", item) for item in items if isinstance(item, Mapping)]
        return "".join(str(part.get("text") or part.get("content") or "") for part in parts)
    return ""


def expected_text(model: str, prompt: str | Sequence[Message], tokens: int, *, choice: int = 0) -> str:
    """The first `tokens` tokens of the answer of the engine that serves `model`, to a text or to chat messages.

    A continuation of a part of it gives exactly the rest. `choice` is the index of one of several choices.
    """
    segments = [prompt] if isinstance(prompt, str) else chat_segments(prompt)
    return WordAnswer(seed_of(model, segments, choice), tokens).text(0, tokens)


def seed_of(model: str, segments: Sequence[str], choice: int = 0) -> bytes:
    """What the answer to a prompt depends on."""
    hashed = blake2b(digest_size=16, key=choice.to_bytes(4, "little"))
    for segment in (model, *segments):
        raw = segment.encode("utf-8", "replace")
        hashed.update(len(raw).to_bytes(8, "little"))
        hashed.update(raw)
    return hashed.digest()


class WordAnswer:
    """An answer of words: `natural_tokens` long unless it is bounded, endless where asked for more."""

    __slots__ = ("_block", "_block_number", "_seed", "natural_tokens")

    def __init__(self, seed: bytes, natural_tokens: int) -> None:
        self._seed = seed
        self._block: tuple[str, ...] = ()
        self._block_number = -1
        self.natural_tokens = natural_tokens

    def piece(self, k: int) -> str:
        """The text of token `k`."""
        number = k // WORDS_A_HASH
        if number != self._block_number:
            self._block, self._block_number = _words(self._seed, number), number
        word = self._block[k % WORDS_A_HASH]
        return word if k else word[1:].capitalize()

    def text(self, first: int, count: int) -> str:
        return "".join(self.piece(k) for k in range(first, first + count))


class NumberedAnswer:
    """An answer that counts its tokens: " 0", " 1", ...; what load clients that check the order ask for."""

    __slots__ = ("natural_tokens",)

    def __init__(self, natural_tokens: int) -> None:
        self.natural_tokens = natural_tokens

    def piece(self, k: int) -> str:
        return f" {k}"

    def text(self, first: int, count: int) -> str:
        return "".join(f" {k}" for k in range(first, first + count))


class FixedAnswer:
    """A text that is known beforehand: a JSON document, or what is left of a partial answer."""

    __slots__ = ("_text", "natural_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self.natural_tokens = -(-len(text) // TOKEN_BYTES)

    def piece(self, k: int) -> str:
        return self._text[k * TOKEN_BYTES : (k + 1) * TOKEN_BYTES]

    def text(self, first: int, count: int) -> str:
        return self._text[first * TOKEN_BYTES : (first + count) * TOKEN_BYTES]


class ContinuedAnswer:
    """The rest of an answer of which the caller has a part already."""

    __slots__ = ("_first", "_head", "_whole", "natural_tokens")

    def __init__(self, whole: WordAnswer, partial: str) -> None:
        self._whole = whole
        self._first, length = 0, 0
        while length < len(partial):
            length += len(whole.piece(self._first))
            self._first += 1
        self._head = whole.piece(self._first - 1)[len(whole.piece(self._first - 1)) - (length - len(partial)) :]
        if length == len(partial):
            self._head = ""
        self.natural_tokens = max(0, whole.natural_tokens - self._first) + bool(self._head)

    def piece(self, k: int) -> str:
        if self._head:
            return self._head if k == 0 else self._whole.piece(self._first + k - 1)
        return self._whole.piece(self._first + k)

    def text(self, first: int, count: int) -> str:
        return "".join(self.piece(k) for k in range(first, first + count))


Answer = WordAnswer | NumberedAnswer | FixedAnswer | ContinuedAnswer


def continue_answer(model: str, segments: Sequence[str], partial: str, natural_tokens: int) -> Answer:
    """What follows `partial`: the rest of the answer to `segments` if it began so, else an answer to both."""
    whole = WordAnswer(seed_of(model, segments), natural_tokens)
    needed = len(partial) // TOKEN_BYTES + 2
    if partial and whole.text(0, needed).startswith(partial):
        return ContinuedAnswer(whole, partial)
    return WordAnswer(seed_of(model, [*segments, partial]), natural_tokens) if partial else whole


_OWN_WORDS = re.compile(r"[A-Z][aeiou][a-z](?: [b-z][aeiou][b-z])*(?: [b-z]?[aeiou]?)?$")
"""The end of a text that may be the beginning of one of our answers: only its first word has a capital."""


def split_own_answer(model: str, text: str) -> tuple[str, str] | None:
    """Where a text prompt ends with a part of the answer to its beginning: beginning and part.

    The completions API has no field for a continuation: prompt and part come as one text.
    """
    found = _OWN_WORDS.search(text, max(0, text.rfind("|>") + 1))
    if found is None or not found.start():
        return None
    prompt, partial = text[: found.start()], found.group()
    tokens = len(partial) // TOKEN_BYTES + 2
    return (prompt, partial) if expected_text(model, prompt, tokens).startswith(partial) else None


@lru_cache(maxsize=4096)
def _words(seed: bytes, number: int) -> tuple[str, ...]:
    digest = blake2b(number.to_bytes(8, "little"), key=seed, digest_size=2 * WORDS_A_HASH).digest()
    return tuple(WORDS[int.from_bytes(digest[i : i + 2], "little") % len(WORDS)] for i in range(0, len(digest), 2))
