"""The choice: sample where the fleet is large, hold back what is overloaded, add up costs, take the lowest.

`pick` is what every request takes; `explain` says of the same choice what it is made of.

Costs are seconds, lower is better, and add up: time until this request has its first token, time that it takes from the
fleet, time that it takes from those who generate there. (Not scores from 0 to 1: a second of waiting must weigh the
same whatever the others cost.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.domain.record import Record
from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.ask import Ask
from headrace.gateway.routing.core.candidate import ATTENTION_TOKENS, Candidate, prefill_work
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.prefix_index import NO_MATCHES, NOTHING_HELD, Matches, PrefixIndex
from headrace.gateway.routing.core.usual_costs import Mix, usual_totals

OFFLINE = RequestClass.OFFLINE
MASK = 0xFFFFFFFFFFFFFFFF
MIX = 0xD6E8FEB86659FD93
"""An odd 64-bit constant: multiplying by it spreads low bits into high ones."""
HOLDERS_SAMPLED = 4
OTHERS_SAMPLED = 4
"""Of a fleet above `sample_above`: endpoints that hold most of the prompt, and others. Two would do (the power of two
choices); four cost little more."""
NEAR_RATIO = 0.02
NEAR_S = 0.002
"""Costs this close are equal: what differs is noise of the estimates."""
BRAKE_SLACK = 2.0
"""Requests above the mean that never count as overload: with one or two in flight a ratio says nothing."""


@dataclass(slots=True, kw_only=True)
class View:
    """One decision's numbers, each list in the order of the candidates."""

    ask: Ask
    candidates: Sequence[Candidate]
    ahead_tokens: list[float]
    uncached_tokens: list[float]
    work_tokens: list[float]
    """What computing them costs, in tokens of a short prompt."""
    paces_s: list[float]
    """Seconds that a token of such work takes there."""


class Scorer(Protocol):
    """Gives each candidate a cost. Pure."""

    kind: str

    def costs(self, view: View) -> list[float]:
        """Seconds, lower is better, in the order of the candidates."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A scorer, and what a second of it counts for each class of requests."""

    scorer: Scorer
    weight: float
    offline_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one model's requests are placed."""

    scorers: tuple[Weighted, ...]
    brake_factor: float | None = 1.5
    """Requests in flight at one endpoint, as a share of the mean, above which it gets no more."""
    sample_above: int = 64
    uses_prefixes: bool = True
    usual: tuple[Mix, Mix] | None = None
    """Where `scorers` are all of the usual ones: their weights, and those for offline requests."""
    has_sessions: bool = False
    """A scorer looks at the session."""


class Decision(Record):
    """What was picked, and why."""

    picked: Candidate
    view: View
    braked: Sequence[Candidate]
    parts: Mapping[str, list[float]]
    """Weighted seconds by scorer, in the view's order."""
    totals: Sequence[float]
    unsampled: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """Candidates by their bit: what a choice among thousands needs, so that it need not walk through all of them."""

    by_bit: Mapping[int, Candidate]
    bits: int


def fleet_of(candidates: Iterable[Candidate]) -> Fleet:
    """Return the fleet of these candidates."""
    by_bit = {candidate.bit: candidate for candidate in candidates}
    bits = 0
    for bit in by_bit:
        bits |= bit
    return Fleet(by_bit, bits)


def pick(
    ask: Ask, candidates: Sequence[Candidate], policy: Policy, index: PrefixIndex, fleet: Fleet | None = None
) -> Candidate:
    """Pick one of `candidates` (at least one). `fleet`: of the same candidates, where the caller has it already.

    Modifies: what `ask` has for it, and when the picked one was last picked.
    """
    chain, usual, brake = ask.chain, policy.usual, policy.brake_factor
    ask.is_braked = ask.is_sampled = False
    matches = NO_MATCHES if chain is None else _matches(chain, candidates, policy, index, fleet)
    looked_at, held, tokens_per_unit = candidates, NOTHING_HELD, 0.0
    if len(candidates) > policy.sample_above:
        looked_at = _sample(ask, candidates, fleet or fleet_of(candidates), matches)
        ask.is_sampled = True
    if matches.steps and chain is not None:
        held = matches.held_of([each.bit for each in looked_at]) if ask.is_sampled else matches.held
        tokens_per_unit = ask.input_tokens / max(1, chain.length)
    if usual is None:
        if brake is not None:
            kept = _below_brake(looked_at, candidates, brake)
            ask.is_braked, looked_at = len(kept) < len(looked_at), kept
        totals, _ = _cost(_view(ask, looked_at, held), policy)
    else:
        mix = usual[1 if ask.request_class is OFFLINE else 0]
        totals, in_flight, busiest = usual_totals(
            looked_at, mix, ask.input_tokens, ask.output_tokens, held, tokens_per_unit, ask.now_mono_s
        )
        if (
            brake is not None
            and busiest * len(looked_at) > brake * in_flight  # else it is below any bound
            and busiest > (most := _most(in_flight, looked_at, candidates, brake))
        ):
            ask.is_braked = True
            places = [place for place, each in enumerate(looked_at) if each.in_flight + each.foreign <= most]
            looked_at, totals = [looked_at[place] for place in places], [totals[place] for place in places]
    picked = _lowest(looked_at, totals, matches.fresh_name)
    picked.last_turn = ask.turn
    ask.held_tokens = held[picked.bit] * tokens_per_unit if held and picked.bit in held else 0.0
    return picked


def explain(
    ask: Ask, candidates: Sequence[Candidate], policy: Policy, index: PrefixIndex, fleet: Fleet | None = None
) -> Decision:
    """Choose as `pick` would, with every cost written down; nobody's turn is used up."""
    chain = ask.chain
    matches = NO_MATCHES if chain is None else _matches(chain, candidates, policy, index, fleet)
    looked_at = candidates
    if len(candidates) > policy.sample_above:
        looked_at = _sample(ask, candidates, fleet or fleet_of(candidates), matches)
    kept = looked_at if policy.brake_factor is None else _below_brake(looked_at, candidates, policy.brake_factor)
    view = _view(ask, kept, matches.held_of([candidate.bit for candidate in kept]))
    totals, parts = _cost(view, policy)
    picked = _lowest(kept, totals, matches.fresh_name)
    return Decision(
        picked=picked,
        view=view,
        braked=[candidate for candidate in looked_at if candidate not in kept],
        parts=parts,
        totals=totals,
        unsampled=len(candidates) - len(looked_at),
    )


def _matches(
    chain: PromptChain, candidates: Sequence[Candidate], policy: Policy, index: PrefixIndex, fleet: Fleet | None
) -> Matches:
    if not chain.names or not policy.uses_prefixes:
        return NO_MATCHES
    return index.match(chain, _bits_of(candidates) if fleet is None else fleet.bits)


def _bits_of(candidates: Sequence[Candidate]) -> int:
    bits = 0
    for candidate in candidates:
        bits |= candidate.bit
    return bits


def _view(ask: Ask, candidates: Sequence[Candidate], held: Mapping[int, int]) -> View:
    now_mono_s, tokens = ask.now_mono_s, ask.input_tokens
    if held and ask.chain is not None:
        per_unit = tokens / max(1, ask.chain.length)
        uncached = [
            tokens - min(tokens - 1.0, held.get(candidate.bit, 0) * per_unit * candidate.trust)
            for candidate in candidates
        ]
        work = [left * (1.0 + (tokens - 0.5 * left) / ATTENTION_TOKENS) for left in uncached]  # `prefill_work`
    else:
        uncached = [tokens] * len(candidates)
        work = [prefill_work(tokens, tokens)] * len(candidates)
    return View(
        ask=ask,
        candidates=candidates,
        ahead_tokens=[
            candidate.ahead_tokens(now_mono_s) if candidate.prefill_tokens else 0.0 for candidate in candidates
        ],
        uncached_tokens=uncached,
        work_tokens=work,
        paces_s=[candidate.factor * candidate.pool.ttft.slope for candidate in candidates],
    )


def _cost(view: View, policy: Policy) -> tuple[list[float], dict[str, list[float]]]:
    is_offline = view.ask.request_class is OFFLINE
    totals: list[float] = []
    parts: dict[str, list[float]] = {}
    for weighted in policy.scorers:
        weight = weighted.offline_weight if is_offline else weighted.weight
        costs = weighted.scorer.costs(view)
        if totals:
            totals = [total + weight * cost for total, cost in zip(totals, costs, strict=True)]
        else:
            totals = costs if weight == 1.0 else [weight * cost for cost in costs]
        parts[weighted.scorer.kind] = [weight * cost for cost in costs]
    return totals or [0.0] * len(view.candidates), parts


def _lowest(candidates: Sequence[Candidate], totals: Sequence[float], fresh_name: int) -> Candidate:
    """Return the one of the lowest cost. Among nearly equal ones workers that have learned nothing yet agree by the
    first block that nobody holds; what is held by all, or too short to have blocks, goes to whoever waited longest:
    regular arrivals keep prompts from meeting in one engine."""
    lowest = min(totals)
    near_s = lowest * NEAR_RATIO
    bound = lowest + (near_s if near_s > NEAR_S else NEAR_S)
    best, best_rank = None, 0
    for place, total in enumerate(totals):  # a plain loop, as everywhere on this path: a call costs more than a turn
        if total <= bound:
            candidate = candidates[place]
            rank = (candidate.seed ^ fresh_name) * MIX & MASK if fresh_name else -candidate.last_turn
            if best is None or rank > best_rank:
                best, best_rank = candidate, rank
    assert best is not None
    return best


def _most(in_flight: int, looked_at: Sequence[Candidate], fleet: Sequence[Candidate], ratio: float) -> float:
    """Requests in flight above which an endpoint gets no more: far more than the mean of the fleet (of what is looked
    at, where that is a sample: adding up a large fleet costs more than it tells)."""
    count = len(looked_at)
    mean = in_flight / count
    if count < len(fleet):
        return (mean + 1.0) * ratio * 1.5
    ratio_bound, slack_bound = mean * ratio, mean + BRAKE_SLACK
    return ratio_bound if ratio_bound > slack_bound else slack_bound


def _below_brake(looked_at: Sequence[Candidate], fleet: Sequence[Candidate], ratio: float) -> Sequence[Candidate]:
    """Leave out what has far more in flight than the mean."""
    loads = [candidate.in_flight + candidate.foreign for candidate in looked_at]
    most = _most(sum(loads), looked_at, fleet, ratio)
    if max(loads) <= most:
        return looked_at
    return [candidate for candidate, load in zip(looked_at, loads, strict=True) if load <= most]


def _sample(ask: Ask, candidates: Sequence[Candidate], fleet: Fleet, matches: Matches) -> list[Candidate]:
    """Those that hold most of the prompt, and others by chance; chance comes from the prompt's name, on which all
    workers agree, or from the turn."""
    count = len(candidates)
    sampled: dict[int, Candidate] = {}
    if matches.deepest:
        start = ask.turn % fleet.bits.bit_length()
        later = matches.deepest >> start << start
        for holders in (later, matches.deepest ^ later):  # another one first each turn
            while holders and len(sampled) < HOLDERS_SAMPLED:
                bit = holders & -holders
                sampled[bit] = fleet.by_bit[bit]
                holders ^= bit
    number = matches.fresh_name or ((ask.turn + 1) * MIX & MASK)
    for turn in range(OTHERS_SAMPLED):
        candidate = candidates[(number >> 8) % count]
        sampled[candidate.bit] = candidate
        number = (number ^ (ask.turn if turn else 0)) * MIX + 1 & MASK
    return list(sampled.values())
