"""The table of scorers."""

from typing import get_args

import pytest

from headrace.declaration.model import Model
from headrace.declaration.routing_plan import compile_model_routing
from headrace.declaration.routing_section import ScorerKind
from headrace.gateway.routing.core.candidate import Candidate, PoolSpeed
from headrace.gateway.routing.core.decision import Ask, View
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.plugins import SCORERS, make_policy, make_scorer


def test_what_can_be_declared_exists() -> None:
    """The kinds of headrace.yaml are those of the table, in the same order."""
    assert list(SCORERS) == list(get_args(ScorerKind))


@pytest.mark.parametrize("kind", SCORERS)
def test_a_scorer_gives_each_candidate_a_cost(kind: str) -> None:
    """Every kind answers with finite seconds for each candidate, never below zero, and changes none of them."""
    index, speed = PrefixIndex(), PoolSpeed()
    found = [Candidate(f"p/{n}", index.new_shelf(capacity=100, max_blocks=10), speed) for n in range(3)]
    found[1].in_flight = found[1].running = 4
    ask = Ask(input_tokens=500.0, output_tokens=100.0, request_class="standard", session="s", turn=7)  # pyright: ignore[reportArgumentType]
    view = View(
        ask=ask, candidates=found, ahead_tokens=[0.0, 9.0, 0.0], uncached_tokens=[500.0, 1.0, 500.0],
        work_tokens=[510.0, 1.0, 510.0], paces_s=[1e-4, 1e-4, 1e-4],
    )  # fmt: skip
    scorer = make_scorer(kind)
    costs = scorer.costs(view)
    assert scorer.kind == kind
    assert len(costs) == 3
    assert all(0.0 <= cost < 1e6 for cost in costs)
    assert costs == scorer.costs(view)


def test_weights_are_those_declared() -> None:
    """Offline requests have weights of their own where they are declared."""
    policy = make_policy(compile_model_routing(Model().routing))
    assert [(each.weight, each.offline_weight) for each in policy.scorers] == [(1.0, 0.2), (1.0, 1.0), (0.25, 0.25)]
    assert not policy.has_sessions
