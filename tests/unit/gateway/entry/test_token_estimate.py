"""Tokens of an input before anybody has counted them."""

import base64
import json
from typing import Any

import msgspec
import pytest

from headrace.domain.request import ApiDialect
from headrace.gateway.entry.media import MediaPolicy
from headrace.gateway.entry.token_estimate import (
    LEAST_BYTES_PER_TOKEN,
    MEDIA_TOKENS,
    MOST_BYTES_PER_TOKEN,
    TokenEstimates,
)

CHAT = ApiDialect.CHAT_COMPLETIONS


def fields_of(**fields: Any) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(fields).encode(), type=dict[str, msgspec.Raw])


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        (CHAT, "messages"),
        (CHAT, "tools"),
        (ApiDialect.COMPLETIONS, "prompt"),
        (ApiDialect.EMBEDDINGS, "input"),
        (ApiDialect.RESPONSES, "instructions"),
        (ApiDialect.MESSAGES, "system"),
    ],
)
def test_every_dialect_has_its_input(dialect: ApiDialect, name: str) -> None:
    """Whatever is a part of the prompt counts, and nothing else."""
    estimates = TokenEstimates()
    size, tokens = estimates.measure("m", dialect, fields_of(**{name: "x" * 998, "metadata": {"a": "y" * 5000}}))
    assert (size, 350 < tokens < 450) == (1000, True)


def test_an_estimate_starts_high_and_follows_the_engine() -> None:
    """Before anything is learned a prompt of prose is taken for more than it is; then nearly exactly, from above."""
    estimates = TokenEstimates()
    fields = fields_of(messages=[{"role": "user", "content": "word " * 1000}])
    size, tokens = estimates.measure("m", CHAT, fields)
    assert tokens > 1.5 * 1000
    for _ in range(200):
        estimates.learn("m", size, 1010)
    assert 1010 <= estimates.measure("m", CHAT, fields)[1] < 1030
    assert estimates.measure("other", CHAT, fields)[1] == tokens


def test_dense_text_is_learned_at_once() -> None:
    """After prose, a tokenizer's worst text: a few requests are enough to be on the safe side again."""
    estimates = TokenEstimates()
    for _ in range(100):
        estimates.learn("m", 5000, 1008)
    for _ in range(4):
        estimates.learn("m", 1000, 1008)
    assert estimates.measure("m", CHAT, fields_of(messages="x" * 998))[1] > 750


def test_no_engine_can_make_an_estimate_absurd() -> None:
    """Whatever it claims to have counted."""
    estimates = TokenEstimates()
    for claimed, low, high in ((10**9, 0, 1000 / LEAST_BYTES_PER_TOKEN + 9), (9, 1000 / MOST_BYTES_PER_TOKEN, 10**9)):
        for _ in range(500):
            estimates.learn("m", 1000, claimed)
        assert low <= estimates.measure("m", CHAT, fields_of(messages="x" * 998))[1] <= high
    estimates.learn("m", 0, 0)


def test_pictures_count_as_pictures() -> None:
    """A megabyte of picture is not a quarter of a million tokens."""
    picture = base64.b64encode(bytes(1_000_000)).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
    fields = fields_of(messages=[{"role": "user", "content": [part, part]}])
    content = MediaPolicy(()).check(fields)
    _, tokens = TokenEstimates().measure("m", CHAT, fields, media=content.media, media_bytes=content.media_bytes)
    assert 2 * MEDIA_TOKENS <= tokens < 2 * MEDIA_TOKENS + 150
