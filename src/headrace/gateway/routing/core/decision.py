"""The choice: sample where the fleet is large, hold back what is overloaded, add up costs, take the lowest.

Costs are seconds, lower is better, and add up: time until this request has its first token, time that it takes from the
fleet, time that it takes from those who generate there. (Not scores from 0 to 1: a second of waiting must weigh the
same whatever the others cost.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.candidate import ATTENTION_TOKENS, Candidate, prefill_work
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.prefix_index import NO_MATCHES, Matches, PrefixIndex
from headrace.gateway.routing.core.usual_costs import Mix, usual_totals

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


class Decision(msgspec.Struct, kw_only=True, eq=False):
    """What was picked, and why."""

    picked: Candidate
    held_tokens: float
    """Of the prompt's tokens, those that the index believes to be cached there."""
    view: View | None = None
    braked: Sequence[Candidate] = ()
    parts: Mapping[str, list[float]] | None = None
    """Where it was to be explained: weighted seconds by scorer, in the view's order."""
    totals: Sequence[float] = ()
    unsampled: int = 0


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


def decide(
    ask: Ask,
    candidates: Sequence[Candidate],
    policy: Policy,
    index: PrefixIndex,
    *,
    fleet: Fleet | None = None,
    explains: bool = False,
) -> Decision:
    """Pick one of `candidates` (at least one). `fleet`: of the same candidates, where the caller has it already."""
    is_large = len(candidates) > policy.sample_above
    if is_large and fleet is None:
        fleet = fleet_of(candidates)
    chain = ask.chain
    matches = NO_MATCHES
    if chain is not None and chain.names and policy.uses_prefixes:
        matches = index.match(chain, _bits_of(candidates) if fleet is None else fleet.bits)
    looked_at = _sample(ask, candidates, fleet, matches) if is_large and fleet is not None else candidates
    kept = looked_at if policy.brake_factor is None else _below_brake(looked_at, candidates, policy.brake_factor)
    held, view, parts = matches.held, None, None
    if explains or policy.usual is None:
        view = _view(ask, kept, matches)
        totals, parts = _cost(view, policy, explains=explains)
    else:
        totals = usual_totals(
            kept,
            policy.usual[ask.request_class is RequestClass.OFFLINE],
            held=held,
            input_tokens=ask.input_tokens,
            tokens_per_unit=ask.input_tokens / max(1, chain.length) if held and chain is not None else 0.0,
            output_tokens=ask.output_tokens,
            now_mono_s=ask.now_mono_s,
        )
    picked = kept[_lowest(kept, totals, matches)]
    decision = Decision(picked=picked, held_tokens=_held_tokens(ask, held[picked.bit]) if picked.bit in held else 0.0)
    if explains:
        decision.view, decision.parts, decision.totals = view, parts, totals
        decision.braked = [candidate for candidate in looked_at if candidate not in kept]
        decision.unsampled = len(candidates) - len(looked_at)
    else:
        picked.last_turn = ask.turn
    return decision


def _bits_of(candidates: Sequence[Candidate]) -> int:
    bits = 0
    for candidate in candidates:
        bits |= candidate.bit
    return bits


def _view(ask: Ask, candidates: Sequence[Candidate], matches: Matches) -> View:
    now_mono_s, tokens = ask.now_mono_s, ask.input_tokens
    held = matches.held
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


def _cost(view: View, policy: Policy, *, explains: bool) -> tuple[list[float], dict[str, list[float]]]:
    is_offline = view.ask.request_class is RequestClass.OFFLINE
    totals: list[float] = []
    parts: dict[str, list[float]] = {}
    for weighted in policy.scorers:
        weight = weighted.offline_weight if is_offline else weighted.weight
        costs = weighted.scorer.costs(view)
        if totals:
            totals = [total + weight * cost for total, cost in zip(totals, costs, strict=True)]
        else:
            totals = costs if weight == 1.0 else [weight * cost for cost in costs]
        if explains:
            parts[weighted.scorer.kind] = [weight * cost for cost in costs]
    return totals or [0.0] * len(view.candidates), parts


def _lowest(candidates: Sequence[Candidate], totals: list[float], matches: Matches) -> int:
    """Return the place of the lowest cost. Among nearly equal ones workers that have learned nothing yet agree by the
    first block that nobody holds; what is held by all, or too short to have blocks, goes to whoever waited longest:
    regular arrivals keep prompts from meeting in one engine."""
    if len(totals) == 1:
        return 0
    lowest = min(totals)
    bound = lowest + max(NEAR_S, abs(lowest) * NEAR_RATIO)
    name, best, best_rank = matches.fresh_name, -1, 0
    for place, total in enumerate(totals):  # plain loops, as everywhere on this path: a call costs more than a turn
        if total > bound:
            continue
        candidate = candidates[place]
        rank = (candidate.seed ^ name) * MIX & MASK if name else -candidate.last_turn
        if best < 0 or rank > best_rank:
            best, best_rank = place, rank
    return best


def _below_brake(looked_at: Sequence[Candidate], fleet: Sequence[Candidate], ratio: float) -> Sequence[Candidate]:
    """Leave out what has far more in flight than the mean of the fleet (of what is looked at, where that is a sample:
    adding up a large fleet costs more than it tells)."""
    all_loads = highest = 0
    for candidate in looked_at:
        load = candidate.in_flight + candidate.foreign
        all_loads += load
        if load > highest:
            highest = load
    mean = all_loads / len(looked_at)
    bound = max(mean * ratio, mean + BRAKE_SLACK) if len(looked_at) == len(fleet) else (mean + 1.0) * ratio * 1.5
    if highest <= bound:
        return looked_at
    return [candidate for candidate in looked_at if candidate.in_flight + candidate.foreign <= bound]


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


def _held_tokens(ask: Ask, held: int) -> float:
    chain = ask.chain
    return held * ask.input_tokens / max(1, chain.length) if chain is not None else 0.0
