"""What the scorers of the usual policy add up to, in one walk through the candidates and without a list for each.

Counterpart: `scorers.py`, which says the same one reason at a time, for `explain` and for any other policy; a test
holds the two equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.gateway.routing.core.candidate import ATTENTION_TOKENS, Candidate

INTERFERENCE_RATIO = 0.2
"""How much of a prompt's time those who generate beside it lose: engines mix prompts into steps. Chosen by rehearsing
8 replicas on a chat trace at 70 and 95 % load, as the weights of the default policy."""
USUAL_KINDS = ("predicted-ttft", "prefill-work", "decode-slowdown")


@dataclass(frozen=True, slots=True)
class Mix:
    """Weights of the usual scorers; 0 where a policy does without one."""

    ttft: float
    work: float
    slowdown: float


def mix_of(weights: Sequence[tuple[str, float]]) -> Mix | None:
    """Return the mix of these kinds and weights; None where another kind is among them, or one twice."""
    by_kind = dict(weights)
    if len(by_kind) < len(weights) or not by_kind.keys() <= set(USUAL_KINDS):
        return None
    return Mix(*(by_kind.get(kind, 0.0) for kind in USUAL_KINDS))


def usual_totals(
    candidates: Sequence[Candidate],
    mix: Mix,
    *,
    held: Mapping[int, int],
    input_tokens: float,
    tokens_per_unit: float,
    output_tokens: float,
    now_mono_s: float,
) -> list[float]:
    """Weighted seconds of each candidate. `held`: what they hold of the prompt, in units of its chain."""
    all_work = input_tokens * (1.0 + 0.5 * input_tokens / ATTENTION_TOKENS)  # `prefill_work` of the whole prompt
    ttft_weight, work_weight, slowdown_weight = mix.ttft, mix.work, mix.slowdown
    totals: list[float] = []
    for candidate in candidates:
        work = all_work
        if held and candidate.bit in held:
            left = input_tokens - min(input_tokens - 1.0, held[candidate.bit] * tokens_per_unit * candidate.trust)
            work = left * (1.0 + (input_tokens - 0.5 * left) / ATTENTION_TOKENS)
        ahead = candidate.ahead_tokens(now_mono_s) if candidate.prefill_tokens else 0.0
        pool, factor = candidate.pool, candidate.factor
        pace_s = factor * pool.ttft.slope
        work_s = pace_s * work
        in_flight = candidate.in_flight + candidate.foreign
        slowdown_s = 2.0 * output_tokens * pool.tpot.slope * in_flight + INTERFERENCE_RATIO * work_s * candidate.running
        totals.append(
            ttft_weight * (factor * pool.ttft.fixed + pace_s * ahead + work_s)
            + work_weight * work_s
            + slowdown_weight * slowdown_s
        )
    return totals
