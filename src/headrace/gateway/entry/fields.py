"""The field policy: which top-level body fields pass, per API dialect and engine.

1. owned: set by the gateway alone (`priority`, `cache_salt`, transfer parameters, slot ids); refused from callers,
   whatever the engine, since some of them crash one.
2. gated: passed only where the operator allows the field by name.
3. shaped: read here and put into the engine's own words (`shaping.py`).
4. safe: the API's own fields, and what the model's engines are known to understand.
5. anything else: `gateway.fields.unknown_fields` says forward or refuse; never dropped in silence.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect
from headrace.engines.constraint_reader import API_OF_FIELD
from headrace.engines.contract import FieldRule
from headrace.engines.dialects import CARRIERS, OWNED_PREFIXES
from headrace.gateway.endpoints.serving import ServedModel, fields_with_rule
from headrace.gateway.entry.caller_value import decoded_value

_SAMPLING = "model stream temperature top_p metadata user safety_identifier service_tier prompt_cache_key".split()
_CHAT = """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages
modalities n parallel_tool_calls prediction presence_penalty prompt_cache_retention reasoning_effort response_format
seed stop store stream_options tool_choice tools top_logprobs verbosity web_search_options""".split()
_COMPLETIONS = """best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty prompt seed stop
stream_options suffix""".split()
_EMBEDDINGS = "input dimensions encoding_format".split()
_RESPONSES = """include input instructions max_output_tokens max_tool_calls parallel_tool_calls previous_response_id
prompt prompt_cache_retention reasoning store stream_options text tool_choice tools top_logprobs truncation""".split()
_MESSAGES = "max_tokens messages output_config stop_sequences system thinking tool_choice tools top_k".split()

API_FIELDS: Mapping[ApiDialect, frozenset[str]] = MappingProxyType(
    {
        ApiDialect.CHAT_COMPLETIONS: frozenset(_SAMPLING + _CHAT),
        ApiDialect.COMPLETIONS: frozenset(_SAMPLING + _COMPLETIONS),
        ApiDialect.EMBEDDINGS: frozenset(_SAMPLING + _EMBEDDINGS),
        ApiDialect.RESPONSES: frozenset(_SAMPLING + _RESPONSES),
        ApiDialect.MESSAGES: frozenset(_SAMPLING + _MESSAGES),
    }
)
"""Fields of the public APIs. Source: OpenAI and Anthropic API references, read 2026-11."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "background": "answers are not kept here, so nothing could fetch a background one; leave it out",
        "conversation": "conversations are not kept here; send the whole input",
    }
)
"""Fields that would need state no engine endpoint shares, and why."""


class FieldPolicy:
    """The policy of one gateway plan. Pure; built once per plan."""

    def __init__(self, *, unknown_fields: str, allow_gated: tuple[str, ...]) -> None:
        self._refuses_unknown = unknown_fields == "refuse"
        self._allowed = frozenset(allow_gated)
        self._owned = fields_with_rule(FieldRule.OWNED)
        self._shaped = fields_with_rule(FieldRule.SHAPED)
        self._gated = fields_with_rule(FieldRule.GATED) - self._allowed
        self._plain: dict[tuple[str, ApiDialect], frozenset[str]] = {}

    def check(self, fields: Mapping[str, msgspec.Raw], dialect: ApiDialect, model: ServedModel) -> bool:
        """Return whether a field must be put into the engine's words.

        Raises: RequestError UNSUPPORTED_PARAMETER naming the first field that may not pass.
        """
        plain = self.plain_fields(dialect, model)
        if plain.issuperset(fields):
            return False
        odd = sorted(fields.keys() - plain)
        for name in odd:
            if not self._is_shaped(name, dialect):
                self._check_odd(name, fields[name], dialect, model)
            elif name in CARRIERS and (hidden := self._find_owned(name, fields[name])):
                raise _refusal(name, _hides(hidden))
        return any(self._is_shaped(name, dialect) for name in odd)

    def _is_shaped(self, name: str, dialect: ApiDialect) -> bool:
        return name in self._shaped and API_OF_FIELD.get(name, dialect) is dialect

    def plain_fields(self, dialect: ApiDialect, model: ServedModel) -> frozenset[str]:
        """The fields that pass as they are: a request with no others needs no `check`."""
        found = self._plain.get((model.name, dialect))
        if found is not None:
            return found
        known = {name for driver in model.drivers for name in driver.dialect.fields}
        aliases = {name for driver in model.drivers for name in driver.dialect.output_limit_aliases}
        wanted = API_FIELDS[dialect] | ((known | aliases) - self._allowed)  # what is opened is still looked into
        shaped = {name for name in self._shaped if self._is_shaped(name, dialect)}
        plain = frozenset(wanted - self._owned - self._gated - shaped - REFUSED.keys() - set(CARRIERS))
        self._plain[model.name, dialect] = plain
        return plain

    def _check_odd(self, name: str, raw: msgspec.Raw, dialect: ApiDialect, model: ServedModel) -> None:
        is_known = name in self._allowed or any(name in driver.dialect.fields for driver in model.drivers)
        if name in self._owned or name.startswith(OWNED_PREFIXES):
            reason = "is set by the gateway and is not taken from callers; leave it out"
        elif name in REFUSED:
            reason = f"is not supported: {REFUSED[name]}"
        elif name in self._gated:
            reason = "is switched off here; an operator can allow it in gateway.fields.allow_gated"
        elif hidden := self._find_owned(name, raw):
            reason = _hides(hidden)
        elif self._refuses_unknown and not is_known:
            reason = f"is not a field of {dialect.value} that the engine of model {model.name!r} is known to understand"
        else:
            return
        raise _refusal(name, reason)

    def _find_owned(self, name: str, raw: msgspec.Raw) -> str | None:
        """The first owned name at any depth of a value that headrace does not know, or that an engine hands on."""
        if memoryview(raw)[0] not in b"{[" or b"{" not in bytes(raw):  # names stand in objects alone
            return None
        pending: list[object] = [decoded_value(raw, shown_name(name))]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                members = cast("dict[str, object]", value)
                for member in members:
                    if member in self._owned or member.startswith(OWNED_PREFIXES):
                        return member
                pending.extend(members.values())
            elif isinstance(value, list):
                pending.extend(filter(_is_container, cast("list[object]", value)))
        return None


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list)


def _hides(name: str) -> str:
    return f"holds {shown_name(name)}, which is set by the gateway and is not taken from callers; leave it out"


def _refusal(name: str, reason: str) -> RequestError:
    shown = shown_name(name)
    return RequestError(ErrorCode.UNSUPPORTED_PARAMETER, f"field {shown} {reason}", param=shown)


def shown_name(name: str) -> str:
    """A field name as it may appear in a message: short and printable, whatever the caller sent."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:64])
