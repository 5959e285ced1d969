"""What a driver says about handing a prompt's KV over to another engine: bodies, calls, and how to read answers.

The order of the steps, and what follows when one fails, is the gateway's
(`gateway/handover/core/`); here are the words. `find_handover_words` is the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, cast, runtime_checkable

import msgspec

from headrace.domain.endpoint import EngineKind
from headrace.domain.request import ApiDialect, members_of


class TensorRule(StrEnum):
    """Which tensor-parallel sizes of the two engines go together."""

    EQUAL = "equal"
    ONE_DIVIDES_OTHER = "one-divides-other"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRules:
    """What may differ between two engines of one kind, one of which takes the other's KV."""

    tensor: TensorRule = TensorRule.EQUAL
    needs_equal_blocks: bool = True
    """False: the engine cuts blocks of another size to its own."""
    may_join_stages: bool = False
    """Decode with one pipeline stage takes the KV of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegRequest:
    """One request to one engine: the caller's body with changes, or a call of the engine's own."""

    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Members that replace the caller's, as JSON values; `msgspec.Raw` goes out byte for byte."""
    dropped: frozenset[str] = frozenset()
    """Members of the caller's that are left out."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    path: str | None = None
    """A path of the engine's own: `fields` alone are the body. None: the caller's path and body."""

    def body(self, callers: bytes) -> bytes:
        """Return the body to send. Raises: as `members_of`."""
        if self.path is not None:
            return msgspec.json.encode(dict(self.fields))
        members: dict[str, object] = dict(members_of(callers) or {})
        for name in self.dropped:
            members.pop(name, None)
        members.update(self.fields)
        return msgspec.json.encode(members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a prefill answer gives to be taken to decode. To be used once: some engines answer a second use with 200
    and wrong text."""

    key: str
    """Names the KV among all engines."""
    decode: LegRequest
    usable_s: float
    """So long after the answer the KV is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSlot:
    """What an engine says that it has put into a file."""

    tokens: int
    size_bytes: int | None
    """Of the whole file; None: it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """The prefill answer is all that there is to say: nothing is left to decode."""


@runtime_checkable
class TicketWords(Protocol):
    """Engines that compute the prompt first, and tell in their answer where its KV is."""

    @property
    def fit_rules(self) -> FitRules: ...

    @property
    def serves_whole(self) -> bool:
        """Whether an engine with a role also answers requests alone."""
        ...

    def prefill(self, attempt_id: str, api: ApiDialect) -> LegRequest:
        """Return the prefill leg. `attempt_id` was never used before."""
        ...

    def read_prefill(self, body: bytes, attempt_id: str, api: ApiDialect) -> Ticket | WholeAnswer | None:
        """Read the prefill answer; None: it has no KV to take."""
        ...


@runtime_checkable
class RoomWords(Protocol):
    """Engines whose two legs are sent at once, and meet in a room."""

    @property
    def fit_rules(self) -> FitRules: ...

    @property
    def serves_whole(self) -> bool: ...

    def leg(self, attempt_id: str, *, room: int, host: str, port: int) -> LegRequest:
        """Return what both legs are sent. `host` and `port` are those of the prefill engine's meeting place."""
        ...

    def abort(self, attempt_id: str) -> LegRequest:
        """Return the call that ends a leg whose connection is closed or silent."""
        ...

    def is_transfer_error(self, body: bytes) -> bool:
        """Whether a refusal of decode says that the KV did not come."""
        ...


@runtime_checkable
class SlotWords(Protocol):
    """Engines that save a slot's KV as a file, and restore it from there."""

    @property
    def fit_rules(self) -> FitRules: ...

    @property
    def serves_whole(self) -> bool: ...

    def pin(self, slot: int) -> LegRequest:
        """Return the changes that every request to such an engine needs: one without could take a saved slot."""
        ...

    def prefill(self, slot: int) -> LegRequest: ...

    def read_prompt_tokens(self, body: bytes) -> int | None:
        """Read from a prefill answer how many tokens the prompt has."""
        ...

    def save(self, slot: int, file_name: str) -> LegRequest: ...

    def read_saved(self, body: bytes) -> SavedSlot | None:
        """Read what was saved."""
        ...

    def restore(self, slot: int, file_name: str) -> LegRequest: ...

    def read_restored(self, body: bytes) -> int | None:
        """Read how many tokens were restored."""
        ...

    def erase(self, slot: int) -> LegRequest:
        """Return the call that frees what a slot holds."""
        ...


HandoverWords = TicketWords | RoomWords | SlotWords

WORDS: Mapping[EngineKind, str] = MappingProxyType(
    {
        EngineKind.VLLM: "headrace.engines.vllm.handover:VllmHandover",
        EngineKind.SGLANG: "headrace.engines.sglang.handover:SglangHandover",
        EngineKind.TENSORRT_LLM: "headrace.engines.tensorrt_llm.handover:TensorrtLlmHandover",
        EngineKind.LLAMACPP: "headrace.engines.llamacpp.handover:LlamacppHandover",
    }
)
"""Imported on use."""


def find_handover_words(kind: EngineKind) -> HandoverWords | None:
    """Return the words of `kind`; None: it cannot hand KV over."""
    named = WORDS.get(kind)
    if named is None:
        return None
    module, _, name = named.partition(":")
    return cast("HandoverWords", getattr(import_module(module), name)())
