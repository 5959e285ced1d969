"""The parts of a prompt in the order in which chat templates put them, as slices of the caller's own bytes.

System message, tools, the rest of the messages. Nothing is decoded or written anew: prompts that differ only in white
space between JSON tokens are taken for different ones, which costs a hit and never a wrong answer.
"""

import re
from collections.abc import Mapping

import msgspec

from headrace.domain.request import ApiDialect
from headrace.gateway.routing.core.chain import Bytes

_FIRST_MESSAGE = re.compile(rb'\[\s*+\{[^{}\[\]"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^{}\[\]"]*+)*+\}\s*+,?+')
"""The first message, where it has no part that is itself a list or object."""
LONGEST_SYSTEM_BYTES = 65_536
"""A first message that does not end by then is not looked for further: tools lead. Bounds what a caller can cost."""
_SYSTEM_ROLE = re.compile(rb'"role"\s*:\s*"(?:system|developer)"')

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    ApiDialect.CHAT_COMPLETIONS,
    ApiDialect.COMPLETIONS,
    ApiDialect.RESPONSES,
    ApiDialect.MESSAGES,
)
_NOTHING = msgspec.Raw(b"")


def prompt_parts(fields: Mapping[str, msgspec.Raw], dialect: ApiDialect) -> tuple[Bytes, ...]:
    """Return the parts, none of them empty; the last is the one that a next turn would continue."""
    if dialect is CHAT:
        messages = memoryview(fields.get("messages", _NOTHING))
        tools = fields.get("tools")
        return (messages,) if tools is None else _with_tools(messages, memoryview(tools))
    if dialect is COMPLETIONS:
        return (memoryview(fields.get("prompt", _NOTHING)),)
    if dialect is MESSAGES:
        names = ("system", "tools", "messages")
    elif dialect is RESPONSES:
        names = ("instructions", "tools", "input")
    else:
        return ()
    return tuple(memoryview(fields[name]) for name in names if name in fields)


def _with_tools(messages: memoryview, tools: memoryview) -> tuple[Bytes, ...]:
    found = _FIRST_MESSAGE.match(messages[:LONGEST_SYSTEM_BYTES])
    if found is None or _SYSTEM_ROLE.search(messages[: found.end()]) is None:
        return (tools, messages)
    rest = messages[found.end() :]
    return (messages[: found.end()], tools, rest) if len(rest) else (messages[: found.end()], tools)
