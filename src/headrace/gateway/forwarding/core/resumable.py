"""Which streams may go on elsewhere, by the fields of their requests: what is not known to survive bars a resume.

A field that is not named here bars it, unless it is null. Counterpart: docs/resume.md.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.forwarding.core.bars import ResumeBar

Fields = Mapping[str, msgspec.Raw]

SURVIVING = frozenset(
    """add_generation_prompt add_special_tokens allowed_token_ids bad_words continue_final_message dynatemp_exponent
    dynatemp_range ignore_eos logit_bias max_completion_tokens max_tokens messages metadata min_keep
    min_p model n_predict parallel_tool_calls prompt prompt_cache_key prompt_cache_retention safety_identifier samplers
    service_tier skip_special_tokens spaces_between_special_tokens stop stop_sequences stop_token_ids store stream
    system temperature top_k top_n_sigma top_p typical_p user xtc_probability xtc_threshold""".split()
)
"""Fields that mean the same to a continuation, whatever their value, or are corrected for it (`resuming_body.py`)."""

NEUTRAL: Mapping[str, tuple[ResumeBar, tuple[Any, ...]]] = MappingProxyType(
    {
        "n": (ResumeBar.CHOICES, (1,)),
        "best_of": (ResumeBar.CHOICES, (1,)),
        "use_beam_search": (ResumeBar.CHOICES, (False,)),
        "logprobs": (ResumeBar.LOGPROBS, (False,)),
        "top_logprobs": (ResumeBar.LOGPROBS, (0,)),
        "n_probs": (ResumeBar.LOGPROBS, (0,)),
        "prompt_logprobs": (ResumeBar.LOGPROBS, ()),
        "return_token_ids": (ResumeBar.LOGPROBS, (False,)),
        "return_tokens": (ResumeBar.LOGPROBS, (False,)),
        "echo": (ResumeBar.FIELD, (False,)),
        "tools": (ResumeBar.TOOLS, ([],)),
        "functions": (ResumeBar.TOOLS, ([],)),
        "tool_choice": (ResumeBar.TOOLS, ("none", "auto", {"type": "none"}, {"type": "auto"})),
        "function_call": (ResumeBar.TOOLS, ("none", "auto")),
        "reasoning_effort": (ResumeBar.REASONING, ("none",)),
        "reasoning": (ResumeBar.REASONING, ()),
        "thinking": (ResumeBar.REASONING, ({"type": "disabled"},)),
        "presence_penalty": (ResumeBar.PENALTIES, (0,)),
        "frequency_penalty": (ResumeBar.PENALTIES, (0,)),
        "repetition_penalty": (ResumeBar.PENALTIES, (1,)),
        "repeat_penalty": (ResumeBar.PENALTIES, (1,)),
        "dry_multiplier": (ResumeBar.PENALTIES, (0,)),
        "mirostat": (ResumeBar.PENALTIES, (0,)),
        "min_tokens": (ResumeBar.MIN_TOKENS, (0,)),
        "response_format": (ResumeBar.STRUCTURED, ({"type": "text"},)),
        **dict.fromkeys(
            """ebnf grammar guided_choice guided_grammar guided_json guided_json_object guided_regex json_schema regex
            structured_outputs structural_tag""".split(),
            (ResumeBar.STRUCTURED, ()),
        ),
    }
)
"""Fields that bar a resume unless they are null or have one of these values: `tool_choice` counts beside tools only.

Constraints bar it even where an engine holds old and new words together to a schema: llama.cpp b11549 was seen to
generate the fence of a code block before the JSON and to hide it: what the caller has is not what the model said.
"""

_NULL = msgspec.Raw(b"null")
_KNOWN = SURVIVING | {"seed", "stream_options", "chat_template_kwargs"} | NEUTRAL.keys()


def find_bar(fields: Fields, *, allows_seeded: bool) -> ResumeBar | None:
    """Return why a stream with these fields may not be resumed; None: it may."""
    for name, raw in fields.items():
        if name in SURVIVING or raw == _NULL:
            continue
        try:
            value: Any = msgspec.json.decode(raw)
        except UNDECODABLE:  # nested as deeply as a body may be, and here is less room for it
            return ResumeBar.FIELD
        bar = _bar_of(name, value)
        if bar is ResumeBar.SEED and (allows_seeded or _is_greedy(fields)):
            continue
        if bar is not None:
            return bar
    return None


def may_be_resumable(fields: Fields) -> bool:
    """A first look, by names alone: whether it is worth keeping what the caller is sent."""
    return _KNOWN.issuperset(fields) and "tools" not in fields and "logprobs" not in fields


def _bar_of(name: str, value: Any) -> ResumeBar | None:
    if name in NEUTRAL:
        bar, neutral = NEUTRAL[name]
        is_neutral = any(value == one and isinstance(value, bool) is isinstance(one, bool) for one in neutral)
        return None if is_neutral else bar
    if name == "seed":
        return ResumeBar.SEED
    if name == "stream_options":
        options = cast("dict[str, object]", value) if isinstance(value, dict) else {"?": value}
        is_plain = all(key == "include_usage" or not is_on for key, is_on in options.items())
        return None if is_plain else ResumeBar.FIELD
    if name == "chat_template_kwargs":
        text = msgspec.json.encode(value)
        return ResumeBar.REASONING if b"think" in text or b"reason" in text else None
    return ResumeBar.FIELD


def _is_greedy(fields: Fields) -> bool:
    raw = fields.get("temperature", _NULL)
    try:
        return raw != _NULL and msgspec.json.decode(raw) == 0
    except UNDECODABLE:  # a number out of range, for one: the engine's to judge
        return False
