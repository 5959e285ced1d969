"""The choice among candidates."""

import pytest

from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.candidate import Candidate, PoolSpeed
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.decision import Ask, Policy, Weighted, explain, pick
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.core.scorers import DecodeSlowdownScorer, PredictedTtftScorer, PrefillWorkScorer

DEFAULT = Policy(
    scorers=(
        Weighted(scorer=PredictedTtftScorer(), weight=1.0, offline_weight=0.2),
        Weighted(scorer=PrefillWorkScorer(), weight=1.0, offline_weight=1.0),
        Weighted(scorer=DecodeSlowdownScorer(), weight=0.25, offline_weight=0.25),
    )
)


class Fleet:
    """Candidates of one pool."""

    def __init__(self, count: int) -> None:
        self.index = PrefixIndex()
        self.speed = PoolSpeed()
        self.candidates = [self.join(f"pool/{number}") for number in range(count)]
        self.turn = 0

    def join(self, name: str) -> Candidate:
        return Candidate(name, self.index.new_shelf(capacity=1e6, max_blocks=10_000), self.speed)

    def ask(self, *names: int, tokens: float = 1000.0, of: RequestClass = RequestClass.INTERACTIVE) -> Ask:
        self.turn += 1
        chain = PromptChain(names=names, ends=range(100, 10_000, 100), length=100 * len(names) + 50)
        return Ask(input_tokens=tokens, output_tokens=200.0, request_class=of, chain=chain, turn=self.turn)

    def send(self, ask: Ask, policy: Policy = DEFAULT) -> Candidate:
        picked = pick(ask, self.candidates, policy, self.index)
        picked.claim(self.index, ask.chain, input_tokens=ask.input_tokens, held_tokens=ask.held_tokens, now_mono_s=0.0)
        return picked


def test_a_prompt_goes_where_its_beginning_is() -> None:
    """The second turn of a conversation goes to the endpoint of the first, while that is not busier by more than the
    cached prompt saves."""
    fleet = Fleet(8)
    first = fleet.send(fleet.ask(1, 2, 3, 4, 5, 6, 7, 8, tokens=4000.0))
    first.prefill_tokens, first.in_flight = 0.0, 0
    assert fleet.send(fleet.ask(1, 2, 3, 4, 5, 6, 7, 8, 9, tokens=4500.0)) is first


def test_a_long_queue_outweighs_a_cached_prompt() -> None:
    """Waiting for a hundred thousand tokens is worse than computing four thousand again."""
    fleet = Fleet(4)
    first = fleet.send(fleet.ask(1, 2, 3, 4))
    first.prefill_tokens = 100_000.0
    assert fleet.send(fleet.ask(1, 2, 3, 4, 5, tokens=4000.0)) is not first


def test_short_prompts_are_spread_evenly() -> None:
    """Without anything to share, each endpoint gets its part."""
    fleet = Fleet(4)
    for _ in range(40):
        fleet.send(fleet.ask(tokens=50.0))
    assert [candidate.in_flight for candidate in fleet.candidates] == [10, 10, 10, 10]


def test_workers_that_know_nothing_yet_agree() -> None:
    """Two gateway processes send prompts that begin alike to the same idle endpoint before either has learned."""
    ours, theirs = Fleet(8), Fleet(8)
    for name in range(1, 200):
        asks = [fleet.ask(name, name + 1000) for fleet in (ours, theirs)]
        asks[1].turn = 12345
        picks = [
            pick(ask, fleet.candidates, DEFAULT, fleet.index).endpoint_id
            for ask, fleet in zip(asks, (ours, theirs), strict=True)
        ]
        assert picks[0] == picks[1]


def test_the_prior_spreads_prompts_over_all() -> None:
    """Agreement by name leaves no endpoint out."""
    fleet = Fleet(8)
    found = {pick(fleet.ask(name), fleet.candidates, DEFAULT, fleet.index).endpoint_id for name in range(1, 201)}
    assert len(found) == 8


def test_a_joining_endpoint_moves_few_prompts() -> None:
    """When a ninth endpoint comes, about a ninth of the prompts that nobody holds go elsewhere, all of them to it."""
    fleet = Fleet(8)
    before = [pick(fleet.ask(name), fleet.candidates, DEFAULT, fleet.index) for name in range(1, 501)]
    fleet.candidates.append(fleet.join("pool/8"))
    after = [pick(fleet.ask(name), fleet.candidates, DEFAULT, fleet.index) for name in range(1, 501)]
    moved = [new for old, new in zip(before, after, strict=True) if old is not new]
    assert 20 < len(moved) < 110
    assert set(moved) == {fleet.candidates[-1]}


def test_a_prefix_that_everybody_uses_spreads() -> None:
    """Of requests that all begin alike no endpoint has more than one and a half times the mean in flight."""
    fleet = Fleet(8)
    for number in range(400):
        fleet.send(fleet.ask(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100 + number, tokens=4000.0))
        for candidate in fleet.candidates:
            candidate.prefill_tokens = 0.0  # their prompts are computed at once: only the brake holds back
    loads = [candidate.in_flight for candidate in fleet.candidates]
    assert max(loads) / (sum(loads) / 8) <= 1.5


def test_offline_work_goes_where_it_costs_least() -> None:
    """A request nobody waits for takes the cached prompt, though it waits longer there than elsewhere."""
    fleet = Fleet(2)
    holder = fleet.send(fleet.ask(1, 2, 3, 4, 5, 6, 7, 8, tokens=8000.0))
    holder.prefill_tokens = 25_000.0
    asks = [fleet.ask(1, 2, 3, 4, 5, 6, 7, 8, tokens=8000.0, of=of) for of in RequestClass]
    picks = {ask.request_class: pick(ask, fleet.candidates, DEFAULT, fleet.index) for ask in asks}
    assert picks[RequestClass.OFFLINE] is holder
    assert picks[RequestClass.INTERACTIVE] is not holder


def test_of_a_large_fleet_the_holders_and_some_others_are_looked_at() -> None:
    """Above the declared size a decision looks at few endpoints, the one with the prompt among them."""
    fleet = Fleet(200)
    holder = fleet.candidates[137]
    ask = fleet.ask(1, 2, 3, 4, 5, 6, 7, 8, tokens=8000.0)
    assert ask.chain is not None
    fleet.index.place(holder.shelf, ask.chain)
    decision = explain(ask, fleet.candidates, DEFAULT, fleet.index)
    assert decision.picked is holder
    assert decision.unsampled >= 190


def test_sampling_keeps_a_large_fleet_even() -> None:
    """With four looked at each time, nobody ends far above the mean."""
    fleet = Fleet(100)
    for _ in range(2000):
        fleet.send(fleet.ask(tokens=500.0))
    loads = [candidate.in_flight for candidate in fleet.candidates]
    assert max(loads) <= 1.5 * sum(loads) / len(loads)


def test_an_explanation_adds_up() -> None:
    """The parts of each candidate's cost sum to its total, and the pick has the lowest or nearly so."""
    fleet = Fleet(3)
    fleet.send(fleet.ask(1, 2, 3))
    decision = explain(fleet.ask(1, 2, 3, 4), fleet.candidates, DEFAULT, fleet.index)
    assert set(decision.parts) == {"predicted-ttft", "prefill-work", "decode-slowdown"}
    for place, total in enumerate(decision.totals):
        assert total == pytest.approx(sum(costs[place] for costs in decision.parts.values()))
    best = decision.totals[list(decision.view.candidates).index(decision.picked)]
    assert best <= min(decision.totals) * 1.06 + 0.002
