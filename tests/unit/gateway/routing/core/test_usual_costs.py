"""The walk that adds up the usual scorers says what they say one by one."""

from random import Random

import pytest

from headrace.declaration.model import Model
from headrace.declaration.routing_plan import compile_model_routing
from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.candidate import Candidate, PoolSpeed
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.decision import Ask, explain, pick
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.core.usual_costs import Mix, mix_of, usual_totals
from headrace.gateway.routing.plugins import make_policy

POLICY = make_policy(compile_model_routing(Model().routing))
CHAIN = PromptChain(names=(1, 2, 3, 4), ends=(256, 512, 768, 1024), length=1100)


def busy_candidates(seed: int, index: PrefixIndex) -> list[Candidate]:
    """Of two pools, in all sorts of states."""
    random, pools = Random(seed), (PoolSpeed(), PoolSpeed())
    pools[1].ttft.observe(5000.0, 2.0)
    candidates: list[Candidate] = []
    for number in range(6):
        candidate = Candidate(f"p/{number}", index.new_shelf(capacity=1e6, max_blocks=100), pools[number % 2])
        held = random.randrange(5)
        index.place(candidate.shelf, PromptChain(names=CHAIN.names[:held], ends=CHAIN.ends, length=0))
        candidate.trust, candidate.factor = random.uniform(0.02, 1.0), random.choice((1.0, 1.7))
        candidate.in_flight, candidate.foreign, candidate.running = random.randrange(4), random.randrange(2), 1
        candidate.prefill_tokens = random.choice((0.0, 3000.0))
        candidates.append(candidate)
    return candidates


@pytest.mark.parametrize("request_class", RequestClass)
def test_the_walk_and_the_scorers_agree(request_class: RequestClass) -> None:
    """Whatever the candidates hold and have to do: what `explain` shows is what decides."""
    assert POLICY.usual is not None
    for seed in range(20):
        index = PrefixIndex()
        candidates = busy_candidates(seed, index)
        ask = Ask(input_tokens=300.0, output_tokens=100.0, request_class=request_class, chain=CHAIN, now_mono_s=0.1)
        shown = explain(ask, candidates, POLICY, index)
        bits = 0
        for candidate in candidates:
            bits |= candidate.bit
        totals, in_flight, busiest = usual_totals(
            shown.view.candidates,
            POLICY.usual[request_class is RequestClass.OFFLINE],
            300.0,
            100.0,
            index.match(CHAIN, bits).held,
            300.0 / CHAIN.length,
            0.1,
        )
        assert totals == pytest.approx(shown.totals)
        loads = [candidate.in_flight + candidate.foreign for candidate in shown.view.candidates]
        assert (in_flight, busiest) == (sum(loads), max(loads))
        assert pick(ask, candidates, POLICY, index) is shown.picked


def test_only_the_usual_scorers_are_added_up_so() -> None:
    """A policy with another reason, or with one twice, takes its scorers one by one; one that is left out weighs 0."""
    assert mix_of([("prefill-work", 2.0), ("predicted-ttft", 1.0)]) == Mix(1.0, 2.0, 0.0)
    assert mix_of([("prefill-work", 2.0), ("round-robin", 1.0)]) is None
    assert mix_of([("prefill-work", 2.0), ("prefill-work", 1.0)]) is None
