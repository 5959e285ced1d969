"""What routing keeps of one request, and of each of its attempts. Counterpart: `placer.py`, which makes them.

A module of its own, since `placer.py` may be compiled (docs/decisions/0008), and a Struct with options may not.
"""

from time import monotonic
from typing import TYPE_CHECKING

from headrace.domain.request import InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.routing.core.ask import Ask, Claim
from headrace.gateway.routing.core.candidate import Candidate

if TYPE_CHECKING:
    from headrace.gateway.routing.placer import ModelPlacing, Placer


class Placing(Ask, kw_only=True, eq=False):
    """What routing keeps of one request between choices (`InferenceRequest.placing`)."""

    model: "ModelPlacing"
    picked: Candidate | None = None


class Placement(Claim, kw_only=True, eq=False):
    """One attempt under way: hears of its first token and its end. Implements forwarding's `Placement`."""

    placer: "Placer"
    request: InferenceRequest | None
    """None once it has ended: what is left of claims may be looked at later."""
    placing: Placing

    def first_token(self, now_mono_s: float) -> None:
        self.candidate.first_token(self, now_mono_s)

    def ended(self, usage: TokenUsage, *, is_answered: bool) -> None:
        """The attempt is over; `usage` is what its engine told."""
        self.candidate.end(
            self,
            self.placer.index,
            monotonic(),
            is_answered=is_answered,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_input_tokens,
            output_tokens=usage.output_tokens,
            size_per_token=self.placing.model.bytes_per_token,
        )
        request, self.request = self.request, None
        if is_answered and request is not None:
            chain, prompt_bytes = self.placing.chain, 0
            if chain is None:
                self.shelf.unnamed += request.prompt_bytes
            else:
                prompt_bytes = chain.length
            self.placing.model.learn(prompt_bytes, usage)
            if usage.cached_input_tokens is not None:
                self.placer.note_hits(self, request, usage)
