"""Continuation rows: how each engine goes on with an answer that the caller (or headrace, resuming) began.

The fields of the request, and what holds of the answer, each proved by a test against the real engine or not proved:
what is not proved is refused when it is asked for. Counterpart: `gateway/entry/shaping.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from headrace.domain.request import ApiDialect


class Trailing(StrEnum):
    """What an engine makes of a last message of the assistant's when it is not asked to continue it."""

    CONTINUED = "continued"
    """It goes on with it all the same."""
    NEW_TURN = "new-turn"
    """It begins another answer, as OpenAI's API does."""
    FOR_THE_USERS = "for-the-users"
    """It takes the words for the user's."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that holds of an engine's continuations."""

    holds: bool
    proved_by: str | None = None
    """Test that shows it on the real engine: `tests/FOLDER/FILE.py::NAME`. None: read, not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizing:
    """How an engine is asked for the tokens of a text; it answers with a list `tokens`."""

    path: str
    text_field: str
    flags: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Sent beside the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationRow:
    """One engine."""

    apis: frozenset[ApiDialect] = frozenset()
    """Where it can be asked to continue."""
    asked_with: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Fields that ask for it, sent in place of the caller's own."""
    trailing: Trailing = Trailing.UNKNOWN
    whole_echoes: Fact = Fact(holds=False)
    """A whole answer begins with the words that were there already."""
    stream_echoes: Fact = Fact(holds=False)
    """So does a stream."""
    grammar_replays: Fact = Fact(holds=False)
    """A JSON schema holds for the words that were there and the new ones together, not for the new ones alone."""
    keeps_reasoning: Fact = Fact(holds=False)
    """With a reasoning model the answer goes on as an answer, and does not begin to reason anew."""
    counts_new_tokens: Fact = Fact(holds=False)
    """Log-probabilities, token ids and the count of output tokens are of the new tokens alone."""
    stops_in_new_text: Fact = Fact(holds=False)
    """Stop strings are looked for in the new words alone."""

    keeps_white_space: Fact = Fact(holds=False)
    """White space at the end of what was there survives; elsewhere templates may trim it, and it is said again."""
    default_completion_tokens: int | None = None
    """Output limit of the completions API where the caller gives none; None: none."""
    tokenizing: Tokenizing | None = None
    """Asked before a stream goes on, since an event may hold several tokens; None: each has one, or it is not known."""

    @property
    def facts(self) -> Mapping[str, Fact]:
        named = {member.name: getattr(self, member.name) for member in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, Fact)}


NO_CONTINUATION = ContinuationRow()
"""Nothing is known: a request to continue is refused."""
