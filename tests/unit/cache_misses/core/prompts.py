"""Prompts for the tests of the core."""

import json
from typing import Any

import msgspec

from headrace.cache_misses.core.fingerprint import Fingerprint, FingerprintMaker
from headrace.cache_misses.core.segments import Segment, segments_of
from headrace.domain.request import ApiDialect

SECRET = b"a secret of the tests, not of an instance"
LONG = "Whoever keeps the sluice sees to it that it is never left alone. The wheel turns by day and by night. " * 8


def segments(dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS, **fields: Any) -> list[Segment]:
    return list(segments_of(msgspec.json.decode(json.dumps(fields), type=dict[str, msgspec.Raw]), dialect))


def chat(*contents: Any, maker: FingerprintMaker | None = None, **fields: Any) -> Fingerprint:
    """A system message, then user and assistant in turn."""
    roles = ["system", *(("user", "assistant")[number % 2] for number in range(len(contents)))]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return (maker or FingerprintMaker(SECRET)).make(segments(messages=messages, **fields))
