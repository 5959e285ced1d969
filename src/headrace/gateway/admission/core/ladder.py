"""The ladder: what a tenant has declared to be done with a request that finds its pool full, rather than to refuse it.

Steps hold together, in the declared order, each once the wait to be expected is longer than it says: wait, shorten the
answer, answer with a cheaper model, refuse.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.domain.tenant import DegradeKind, DegradeStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """What is to be done with one request; all at their defaults: it waits as it is."""

    output_tokens: int | None = None
    model: str | None = None
    is_refused: bool = False

    @property
    def is_changed(self) -> bool:
        return self.output_tokens is not None or self.model is not None

    @property
    def mark(self) -> str:
        """What callers and the ledger are told; empty where nothing was changed."""
        parts: list[str] = []
        if self.model is not None:
            parts.append(f"model={self.model}")
        if self.output_tokens is not None:
            parts.append(f"output_tokens={self.output_tokens}")
        return "; ".join(parts)


AS_IT_IS = Degraded()


def degrade(
    steps: Sequence[DegradeStep], model: str, output_limit_tokens: int | None, expected_wait_s: float | None
) -> Degraded:
    """Go down the ladder for a request that must wait. An expected wait that is not known counts as none."""
    wait_s = expected_wait_s or 0.0
    output_tokens: int | None = None
    cheaper: str | None = None
    for step in steps:
        if wait_s < step.from_wait_s or (step.models is not None and model not in step.models):
            continue
        if step.kind is DegradeKind.SHORTEN and step.output_tokens is not None:
            if output_limit_tokens is None or step.output_tokens < output_limit_tokens:
                output_tokens = step.output_tokens
        elif step.kind is DegradeKind.CHEAPER_MODEL and step.model is not None and step.model != model:
            cheaper = step.model
        elif step.kind is DegradeKind.REFUSE:
            return Degraded(output_tokens=output_tokens, model=cheaper, is_refused=True)
    return Degraded(output_tokens=output_tokens, model=cheaper) if output_tokens or cheaper else AS_IT_IS
