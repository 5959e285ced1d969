"""One endpoint as routing knows it."""

import pytest

from headrace.gateway.routing.core.candidate import (
    LEAST_TRUST,
    OWN_POINTS,
    STALE_S,
    Candidate,
    Claim,
    PoolSpeed,
    prefill_work,
)
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.prefix_index import PrefixIndex


class Bench:
    """One candidate with an index of its own."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.candidate = Candidate("pool/0", self.index.new_shelf(capacity=1e6, max_blocks=1000), PoolSpeed())

    def claim(self, tokens: float, now: float, *, held: float = 0.0, stream: bool = True, first: int = 1) -> Claim:
        chain = PromptChain(names=[first, first + 1], ends=[256, 512], length=600)
        return self.candidate.claim(
            self.index, chain, input_tokens=tokens, held_tokens=held, now_mono_s=now, shows_first_token=stream
        )

    def end(self, claim: Claim, now: float, *, ok: bool = True, cached: int | None = None) -> None:
        self.candidate.end(
            claim, self.index, now, is_answered=ok, input_tokens=1000, cached_tokens=cached, output_tokens=11
        )


def test_work_grows_faster_than_the_prompt() -> None:
    """The prefill of 100,000 tokens is predicted at several times that of ten prompts of 10,000."""
    assert prefill_work(100_000, 100_000) > 2 * 10 * prefill_work(10_000, 10_000)
    assert prefill_work(1000, 50_000) > prefill_work(1000, 1000)


def test_counts_return_to_zero_whatever_happens() -> None:
    """Answered, failed before or after the first token, told twice: nothing is left in flight."""
    bench = Bench()
    answered, broken, refused = (bench.claim(1000, 0.0) for _ in range(3))
    assert bench.candidate.in_flight == 3
    for claim in (answered, broken):
        bench.candidate.first_token(claim, 1.0)
    assert bench.candidate.running == 2
    bench.end(answered, 2.0)
    bench.end(answered, 2.0)
    bench.end(broken, 2.0, ok=False)
    bench.end(refused, 2.0, ok=False)
    found = bench.candidate
    assert (found.in_flight, found.running, found.prefill_tokens) == (0, 0, 0.0)


def test_the_queue_ahead_shrinks_while_it_is_worked_on() -> None:
    """What is queued is waited for; the part that was surely computed by now is not."""
    bench = Bench()
    bench.claim(10_000, 0.0)
    queued = bench.candidate.ahead_tokens(0.0)
    assert queued == pytest.approx(prefill_work(10_000, 10_000))
    assert queued * 0.5 <= bench.candidate.ahead_tokens(0.3) < queued
    assert bench.candidate.ahead_tokens(1000.0) == pytest.approx(queued * 0.5)


def test_an_answer_that_comes_whole_leaves_the_queue_when_its_prompt_should_be_done() -> None:
    """Requests that do not stream show no first token; they are taken to generate after the predicted time."""
    bench = Bench()
    claim = bench.claim(1000, 0.0, stream=False)
    assert bench.candidate.ahead_tokens(0.01) > 0
    assert bench.candidate.ahead_tokens(5.0) == 0.0
    assert bench.candidate.running == 1
    bench.end(claim, 6.0)
    assert (bench.candidate.running, bench.candidate.in_flight) == (0, 0)


def test_a_failed_attempt_leaves_no_blocks_behind() -> None:
    """Only what reached its first token is believed to be cached."""
    bench = Bench()
    bench.end(bench.claim(1000, 0.0, first=10), 1.0, ok=False)
    assert len(bench.index) == 0
    bench.end(bench.claim(1000, 0.0, first=20), 1.0)
    assert len(bench.index) == 2


def test_an_engine_that_caches_nothing_is_no_longer_believed_to() -> None:
    """Answers that tell of no cached tokens, though all should have been, end the preference."""
    bench = Bench()
    for _ in range(60):
        bench.end(bench.claim(1000, 0.0, held=900.0), 1.0, cached=0)
    assert bench.candidate.trust == pytest.approx(LEAST_TRUST, abs=0.02)
    for _ in range(60):
        bench.end(bench.claim(1000, 0.0, held=900.0), 1.0, cached=900)
    assert bench.candidate.trust == pytest.approx(1.0, abs=0.02)


def test_an_endpoint_is_as_fast_as_its_pool_until_it_has_shown_otherwise() -> None:
    """A newcomer is neither favoured nor starved; one that is far slower is known after some answers; and one that was
    slow long ago gets another chance."""
    bench = Bench()
    for number in range(40):
        assert number >= OWN_POINTS or bench.candidate.factor == 1.0
        claim = bench.claim(1000, float(number))
        slow_s = 4 * bench.candidate.pool.ttft.predict(claim.ahead_tokens + claim.work_tokens)
        bench.candidate.first_token(claim, number + slow_s)
        bench.candidate.pool.ttft = PoolSpeed().ttft  # the others of the pool are as fast as before
        bench.end(claim, number + slow_s)
    assert bench.candidate.factor > 2.0
    bench.candidate.forget_stale(39.0 + STALE_S)
    assert bench.candidate.factor > 2.0
    bench.candidate.forget_stale(42.0 + STALE_S)
    assert bench.candidate.factor == 1.0


def test_chance_makes_no_difference() -> None:
    """First tokens that come a tenth sooner or later leave an endpoint as fast as its pool."""
    bench = Bench()
    for number in range(60):
        claim = bench.claim(1000, float(number))
        predicted_s = bench.candidate.pool.ttft.predict(claim.ahead_tokens + claim.work_tokens)
        bench.candidate.first_token(claim, number + predicted_s * (0.9, 1.1)[number % 2])
        bench.end(claim, number + 0.9)
    assert bench.candidate.factor == 1.0
