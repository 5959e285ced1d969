"""Noisy neighbours in virtual time: what a tenant notices of another's flood."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.domain.request import RequestClass
from headrace.rehearsal.neighbours import default_rules, run, shares, step_s, tokens_per_s, view
from headrace.rehearsal.virtual_pool import Outcome
from headrace.rehearsal.workload import Lengths, TenantLoad, Workload, read_workload

WORKLOADS = Path(__file__).resolve().parents[3] / "benchmarks" / "workloads"


def flood(tenant: str, **more: object) -> TenantLoad:
    """More than one large engine can do."""
    plain: dict[str, object] = {
        "tenant": tenant,
        "per_s": 20.0,
        "input_tokens": Lengths(least=200, most=1000),
        "output_tokens": Lengths(least=100, most=300),
    }
    return TenantLoad(**{**plain, **more})  # pyright: ignore[reportArgumentType]


def offline_gaps(outcome: Outcome) -> Iterator[float]:
    """Times without a start of offline work while some of it waited."""
    offline = [one for one in outcome.requests if one.arrival.load.request_class is RequestClass.OFFLINE]
    before_s = 0.0
    for one in offline:  # they start in the order in which they came
        if one.dispatched_at_s is not None:
            yield one.dispatched_at_s - max(before_s, one.arrival.at_s)
            before_s = one.dispatched_at_s


def test_a_flood_hardly_reaches_a_quiet_neighbour():
    """One tenant floods at ten times the capacity, one sends a request a second: the quiet one's p99 time to first
    token is at most two engine steps above its value alone, and the engine does at least 92 % of what it does without
    order.
    """
    workload = read_workload(WORKLOADS / "noisy-neighbour.json")
    alone = view(run(workload.only("quiet"), None), "quiet")
    fair, unordered = run(workload, default_rules()), run(workload, None)
    quiet, first_come = view(fair, "quiet"), view(unordered, "quiet")
    assert quiet.requests >= 5000
    assert quiet.answered >= quiet.requests - 5  # the last ones are still running
    assert alone.ttft_p99_s is not None
    assert quiet.ttft_p99_s is not None
    assert quiet.ttft_p99_s <= max(1.3 * alone.ttft_p99_s, alone.ttft_p99_s + 2 * step_s(fair))
    assert tokens_per_s(fair) >= 0.92 * tokens_per_s(unordered)
    assert view(fair, "noisy").requests >= 10 * view(fair, "noisy").answered
    assert first_come.ttft_p99_s is not None
    assert first_come.ttft_p99_s > 100 * quiet.ttft_p99_s


def test_weights_of_three_to_one_give_three_quarters_of_the_tokens():
    """Two tenants that both send more than they can have share the tokens by their weights, within 5 %."""
    workload = Workload(seed=3, duration_s=400.0, tenants=(flood("a", weight=3.0), flood("b", weight=1.0)))
    found = shares(run(workload, default_rules()))
    assert found["a"] / found["b"] == pytest.approx(3.0, rel=0.05)


def test_offline_work_is_never_starved_for_longer_than_its_bound():
    """Under an interactive flood offline work without a share of its own is still started once in its bound (and the
    moment until a place is free).
    """
    rules = default_rules()
    bands = {each: replace(band, reserved_ratio=0.0) for each, band in rules.bands.items()}
    workload = Workload(
        seed=4,
        duration_s=400.0,
        tenants=(
            flood("a", request_class=RequestClass.INTERACTIVE),
            flood("b", request_class=RequestClass.OFFLINE, per_s=1.0),
        ),
    )
    gaps = list(offline_gaps(run(workload, replace(rules, bands=bands))))
    assert gaps
    assert max(gaps) <= bands[RequestClass.OFFLINE].starvation_s + 2.0


def test_two_engines_serve_a_flood_twice_as_fast():
    """Room belongs to an endpoint: with two of them twice the tokens are served, and both stay within their places."""
    workload = Workload(seed=5, duration_s=60.0, tenants=(flood("a"),))
    one, two = run(workload, default_rules()), run(workload, default_rules(), engines=2)
    assert tokens_per_s(two) > 1.8 * tokens_per_s(one)
