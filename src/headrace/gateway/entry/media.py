"""Remote media: an engine that fetches a caller's URL can be made to reach into the operator's network (SSRF).

References to anything but inline data are refused unless their host is in `gateway.fields.media_hosts`.
"""

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.entry.caller_value import decoded_value
from headrace.gateway.entry.plain_message import PlainMessage

MEDIA_KEYS = frozenset({"image_url", "video_url", "audio_url", "input_audio", "file_url", "url"})
"""Keys whose value, or whose value's `url`, an engine would fetch. Source: OpenAI and Anthropic API references, vLLM's
multimodal inputs page, read 2026-11."""
INLINE_KEYS = MEDIA_KEYS | {"file_data"}
"""Keys whose value may be a medium itself, as a data: URL."""
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]")
"""URL parsers disagree on these, so that the host checked here need not be the host an engine fetches from."""
LONGEST_REFERENCE = 16384
"""Characters of a URL. Chosen: twice what servers take, and taking thirty million of them apart takes half a second."""
_OTHER_CONTENT = frozenset({"input", "system", "prompt"})


class Content(msgspec.Struct):
    """What a look through a request's content has shown."""

    ends_with_assistants: bool = False
    """The last message is the assistant's."""
    media: int = 0
    """Inline pictures and other media."""
    media_bytes: int = 0
    """Of the body, that they take."""


PLAIN, PLAIN_BEGUN = Content(), Content(ends_with_assistants=True)
"""Of messages that are text alone; shared, never changed."""


_decode_plain = msgspec.json.Decoder(list[PlainMessage]).decode
_decode_messages = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_ASSISTANT = msgspec.Raw(b'"assistant"')


class MediaPolicy:
    """Which remote media may be referred to. Pure."""

    def __init__(self, media_hosts: tuple[str, ...]) -> None:
        self._hosts = frozenset(host.lower() for host in media_hosts)

    def check(self, fields: Mapping[str, msgspec.Raw]) -> Content:
        """Look through the messages once, for whoever has to know something of them.

        Raises: RequestError UNSUPPORTED_PARAMETER for the first reference that is not allowed.

        A plain string holds no reference, so a long text is skipped over, not searched: that costs a tenth.
        """
        raw = fields.get("messages")
        content = PLAIN if raw is None else self._check_messages(raw)
        if not _OTHER_CONTENT.isdisjoint(fields):
            content = msgspec.structs.replace(content)
            for name in _OTHER_CONTENT.intersection(fields):
                raw = fields[name]
                if _is_nested(raw) and b"{" in bytes(raw):  # references stand in objects alone
                    value = decoded_value(raw, name)
                    self._search(value, name, content)
                    content.ends_with_assistants |= name == "input" and _ends_with_the_assistants(value)
        return content

    def _check_messages(self, raw: msgspec.Raw) -> Content:
        try:
            messages = _decode_plain(raw)
        except msgspec.ValidationError:  # more fields than usual: tool calls, a caller's own
            return self._check_odd_messages(raw)
        for message in messages:
            if memoryview(message.content)[0] in b"[{":  # inline, since it runs for every message of every request
                return self._check_odd_messages(raw)
        return PLAIN_BEGUN if messages and messages[-1].role == "assistant" else PLAIN

    def _check_odd_messages(self, raw: msgspec.Raw) -> Content:
        content = Content()
        try:
            messages = _decode_messages(raw)
        except msgspec.ValidationError:  # no list of objects: the engine will say so, unless it hides something
            self._search(decoded_value(raw, "messages"), "messages", content)
            return content
        for message in messages:
            for key, value in message.items():
                if key in MEDIA_KEYS or _is_nested(value):
                    self._search({key: decoded_value(value, "messages")}, "messages", content)
        content.ends_with_assistants = bool(messages) and messages[-1].get("role") == _ASSISTANT
        return content

    def _search(self, value: object, field: str, content: Content) -> None:
        stack: list[Any] = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, list):
                stack.extend([one for one in item if isinstance(one, list | dict)])  # pyright: ignore[reportUnknownVariableType] (any JSON)
            elif isinstance(item, dict):
                for key, inner in item.items():  # pyright: ignore[reportUnknownVariableType] (any JSON)
                    if not isinstance(inner, str):
                        stack.append(inner)
                    elif key in INLINE_KEYS:
                        if inner[:5].lower() == "data:":
                            content.media += 1
                            content.media_bytes += len(inner)
                        elif key in MEDIA_KEYS:
                            self._check_reference(inner, field)

    def _check_reference(self, reference: str, field: str) -> None:
        if len(reference) > LONGEST_REFERENCE:
            message = f"a URL has {len(reference)} characters; {LONGEST_REFERENCE} are the most that are taken"
            raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=field)
        try:
            url = urlsplit(reference)
            is_allowed = (
                url.scheme in ("http", "https")
                and (url.hostname or "").lower() in self._hosts
                and "@" not in url.netloc
                and not _AMBIGUOUS.search(reference)
            )
            shown = url.hostname or url.scheme or "no host"
        except ValueError:
            is_allowed, shown = False, "an unreadable URL"
        if not is_allowed:
            message = (
                f"remote media is not fetched from {shown[:128]!r}; send it inline as a data: URL, "
                "or ask the operator to add the host to gateway.fields.media_hosts"
            )
            raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=field)


def _ends_with_the_assistants(items: object) -> bool:
    last = cast("list[object]", items)[-1] if isinstance(items, list) and items else None
    return isinstance(last, dict) and cast("dict[str, object]", last).get("role") == "assistant"


def _is_nested(raw: msgspec.Raw) -> bool:
    """Whether a value is an array or an object."""
    return memoryview(raw)[0] in b"[{"
