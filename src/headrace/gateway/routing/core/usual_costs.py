"""What the scorers of the usual policy add up to, in one walk through the candidates and without a list for each.

Counterpart: `scorers.py`, which says the same one reason at a time, for `explain` and for any other policy; a test
holds the two equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.gateway.routing.core.candidate import ATTENTION_TOKENS, Candidate

INTERFERENCE_RATIO = 0.6
"""How much of a prompt's time those who generate beside it lose: engines mix prompts into steps."""
NEIGHBOUR_RATIO = 0.32
"""How much of what a sequence more seems to slow a stream it does slow it: much of that are the prompts that come with
more sequences, and they are counted already. Both chosen by rehearsing 8 replicas at 70 and 95 % load on a chat trace,
on a trace of code (bursts of prompts that share nothing, eight windows of 1,000), and on one hot prefix: with 0.2 and 1
fewer of the code's requests kept their objectives than by round robin, with less the hot prefix came late."""
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
    input_tokens: float,
    output_tokens: float,
    held: Mapping[int, int],
    tokens_per_unit: float,
    now_mono_s: float,
) -> tuple[list[float], int, int]:
    """Weighted seconds of each candidate; the requests in flight at all of them, and at the busiest one.

    `held`: what they hold of the prompt, by bit, in units of its chain. The sum is ordered by what changes least: all
    that depends on pool and prompt alone is worked out once a pool.
    """
    all_work = input_tokens * (1.0 + 0.5 * input_tokens / ATTENTION_TOKENS)  # `prefill_work` of the whole prompt
    ttft_weight, prompt_weight = mix.ttft, mix.ttft + mix.work
    beside_weight = mix.slowdown * INTERFERENCE_RATIO
    neighbour_tokens = 2.0 * mix.slowdown * NEIGHBOUR_RATIO * output_tokens
    totals: list[float] = []
    pool, slope_s, fixed_s, prompt_s, neighbour_s = None, 0.0, 0.0, 0.0, 0.0
    in_flight = busiest = 0
    for candidate in candidates:
        if candidate.pool is not pool:
            pool = candidate.pool
            slope_s, fixed_s = pool.ttft.slope, ttft_weight * pool.ttft.fixed
            prompt_s, neighbour_s = slope_s * all_work, neighbour_tokens * pool.tpot.slope
        work_s, factor = prompt_s, candidate.factor
        if held and candidate.bit in held:
            left = input_tokens - min(input_tokens - 1.0, held[candidate.bit] * tokens_per_unit * candidate.trust)
            work_s = slope_s * left * (1.0 + (input_tokens - 0.5 * left) / ATTENTION_TOKENS)
        load = candidate.in_flight + candidate.foreign
        in_flight += load
        if load > busiest:
            busiest = load
        total = neighbour_s * load + factor * (fixed_s + work_s * (prompt_weight + beside_weight * candidate.running))
        if candidate.prefill_tokens:  # as `Candidate.ahead_s`
            if candidate.next_unseen_mono_s <= now_mono_s:
                candidate.pass_unseen(now_mono_s)
            queued_s, done_s = candidate.prefill_tokens * slope_s * factor, now_mono_s - candidate.head_mono_s
            total += ttft_weight * (queued_s - done_s if done_s < 0.5 * queued_s else 0.5 * queued_s)
        totals.append(total)
    return totals, in_flight, busiest
