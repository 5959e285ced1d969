"""Embeddings of the simulated engine: vectors of length one, a function of the text, alike where words are shared."""

import base64
import math
from array import array
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, cast

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.ask import AskError, Prompt, text_prompt, token_prompt
from headrace.engines.simulated.formats import encode_json

WORDS_READ = 512
"""Of a text, the first so many words shape its vector."""


def read_embedding(raw: bytes) -> tuple[list[Prompt], str, str | None]:
    """What is to be embedded, in which encoding, and by which model.

    Raises: AskError 400.
    """
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any])
    except UNDECODABLE as error:
        raise AskError(400, f"JSON decode error: {error}") from error
    given: object = body.get("input")
    items = cast("list[object]", given) if isinstance(given, list) else [given]
    if items and all(isinstance(item, int) for item in items):
        items = [items]
    prompts: list[Prompt] = []
    for item in items:
        if isinstance(item, str):
            prompts.append(text_prompt(item))
        elif isinstance(item, list):
            prompts.append(token_prompt(cast("list[int]", item)))
    if not prompts:
        raise AskError(400, "input must be a text or a list of texts", param="input")
    model = body.get("model")
    return prompts, str(body.get("encoding_format") or "float"), model if isinstance(model, str) else None


def vector_of(text: str, dimensions: int) -> list[float]:
    """The sum of one direction per word, of length one."""
    total = [0.0] * dimensions
    for word in text.lower().split()[:WORDS_READ] or [text]:
        direction = _direction(word, dimensions)
        total = [one + other for one, other in zip(total, direction, strict=True)]
    length = math.sqrt(math.fsum(value * value for value in total)) or 1.0
    return [value / length for value in total]


def _direction(word: str, dimensions: int) -> list[float]:
    values: list[float] = []
    raw = word.encode("utf-8", "replace")
    block = 0
    while len(values) < dimensions:
        digest = blake2b(raw, digest_size=64, salt=block.to_bytes(16, "little")).digest()
        values += [byte / 127.5 - 1 for byte in digest]
        block += 1
    return values[:dimensions]


def embedding_body(
    prompts: list[Prompt], model: str, dimensions: int, encoding: str, usage: Callable[[int], Mapping[str, object]]
) -> bytes:
    """The whole answer."""
    rows: list[dict[str, object]] = []
    for index, prompt in enumerate(prompts):
        vector = vector_of("".join(prompt.segments), dimensions)
        shown = base64.b64encode(array("f", vector).tobytes()).decode() if encoding == "base64" else vector
        rows.append({"index": index, "object": "embedding", "embedding": shown})
    tokens = sum(len(prompt.tokens) for prompt in prompts)
    return encode_json({"object": "list", "model": model, "data": rows, "usage": usage(tokens)})
