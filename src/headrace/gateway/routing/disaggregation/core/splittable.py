"""Which requests can be handed over at all, by their fields: one prompt, one answer, nothing told of the prompt.

Decode never computes the prompt, so that it cannot tell of it; an answer of several choices has its prompt's KV once.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE

APIS = frozenset({ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS})
"""Those whose two legs were tried."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "n": (1,),
        "best_of": (1,),
        "use_beam_search": (False,),
        "prompt_logprobs": (),
        "echo": (False,),
        "prompt_embeds": (),
        "return_context_logits": (False,),
        "return_token_ids": (False,),
    }
)
"""Fields that keep a request whole unless they are null or have one of these values."""

LEGS_OWN = frozenset(
    ("kv_transfer_params", "disaggregated_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "id_slot")
)
"""A caller that steers the hand-over itself is not given another one."""

_UNREADABLE = object()


def find_split_bar(fields: Mapping[str, msgspec.Raw], dialect: ApiDialect) -> str | None:
    """Return the field (or `api`) that keeps a request whole; None: it can be split. Looks at named fields alone."""
    if dialect not in APIS:
        return "api"
    null = msgspec.Raw(b"null")
    for name in fields.keys() & (NEUTRAL.keys() | LEGS_OWN):
        if fields[name] == null:
            continue
        if name in LEGS_OWN or _find_value(fields[name]) not in NEUTRAL[name]:
            return name
    prompt = fields.get("prompt")
    if prompt is not None and bytes(prompt).startswith(b"[") and _has_several(_find_value(prompt)):
        return "prompt"
    return None


def _find_value(raw: msgspec.Raw) -> Any:
    """What no neutral value equals where it is nested so deeply that it cannot be read."""
    try:
        return msgspec.json.decode(raw)
    except UNDECODABLE:
        return _UNREADABLE


def _has_several(prompts: Any) -> bool:
    """Several texts or lists of tokens; a list of numbers is one prompt's tokens."""
    return prompts is _UNREADABLE or (len(prompts) != 1 and not all(isinstance(one, int) for one in prompts))
