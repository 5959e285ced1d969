"""What is to be known of a request to place it, and of an attempt from the pick to its end.

A module of its own, since `decision.py` and `candidate.py` may be compiled (docs/decisions/0008), and the shell has
classes that derive from these.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.chain import PromptChain

if TYPE_CHECKING:
    from headrace.gateway.routing.core.candidate import Candidate
    from headrace.gateway.routing.core.prefix_index import Shelf


class Ask(msgspec.Struct, kw_only=True, eq=False):
    """What is to be known of a request to place it. A Struct, as all that is made per request: it costs half."""

    input_tokens: float
    output_tokens: float
    """Expected."""
    request_class: RequestClass
    chain: PromptChain | None = None
    session: str | None = None
    turn: int = 0
    """Grows by one with each decision: rotates among equals."""
    now_mono_s: float = 0.0
    held_tokens: float = 0.0
    """What `pick` has found: of the prompt's tokens, those that the index believes to be cached where it goes."""
    is_braked: bool = False
    """What `pick` did: endpoints with far more in flight than the mean were left out."""
    is_sampled: bool = False
    """The same: not all of a large fleet were looked at."""


class Claim(msgspec.Struct, kw_only=True, eq=False):
    """One attempt at one endpoint, from the pick to its end."""

    candidate: "Candidate"
    input_tokens: float
    expected_cached_tokens: float
    """What the index says it need not compute, before trust."""
    claimed_mono_s: float
    shelf: "Shelf"
    """Where its blocks are."""
    work_tokens: float = 0.0
    """What its prompt costs there, as predicted (`prefill_work`)."""
    ahead_tokens: float = 0.0
    """Work that was to be done there before it."""
    running_before: int = 0
    added: Sequence[int] = ()
    """Blocks that the index learned from it; taken back if it never gets a token."""
    first_token_mono_s: float | None = None
    """None where it has not come, or was not seen."""
    is_generating: bool = False
    """Its prompt is computed, as far as is known."""
    is_over: bool = False
