"""`chat_template_kwargs`: arguments for the chat template. A few harmless switches pass; the rest follows the operator.

1. Keys that replace the template, the messages or what the tokenizer returns are refused, whatever is allowed: in vLLM
   before 0.11.1 they did just that (CVE-2025-62426), and nobody needs them.
2. The switches of SWITCHES pass with a plain value, since callers need them to turn reasoning on and off.
3. Any other key passes where the operator has put `chat_template_kwargs` into gateway.fields.allow_gated.
"""

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.entry.fields import shown_name

SWITCHES = frozenset(
    {
        "add_vision_id",
        "clear_thinking",
        "enable_thinking",
        "preserve_thinking",
        "reasoning_effort",
        "thinking",
        "thinking_budget",
        "thinking_mode",
    }
)
"""Arguments of the chat templates of Qwen3, DeepSeek V3.1, GLM 4.5, gpt-oss, Kimi K2 and Granite."""

NEVER = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Parameters of `apply_chat_template` itself. Source: transformers/tokenization_utils_base.py, 5.19."""

_NAME = "chat_template_kwargs"
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def check_template_arguments(raw: msgspec.Raw, *, is_allowed: bool) -> None:
    """Raises: RequestError naming the first key that may not pass."""
    try:
        arguments: dict[str, msgspec.Raw] = _decode(raw) or {}
    except UNDECODABLE:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"field {_NAME} must be an object", param=_NAME) from None
    for key, value in arguments.items():
        is_plain = not bytes(value).startswith((b"[", b"{"))
        if key in NEVER or not (is_allowed or (key in SWITCHES and is_plain)):
            reason = (
                "is not taken from callers"
                if key in NEVER
                else f"is switched off here (callers may set {', '.join(sorted(SWITCHES))}, to plain values); an "
                "operator can allow others in gateway.fields.allow_gated"
            )
            raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, f"{_NAME}.{shown_name(key)} {reason}", param=_NAME)
