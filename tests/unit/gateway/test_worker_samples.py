"""What a worker tells of its traffic for those who size prefill and decode."""

from time import monotonic
from typing import Any

import pytest
from tests.harness.handover_parts import HandoverParts, half

from headrace.domain.split_status import ModelLoad, PoolPace
from headrace.gateway.accounting.counters import Counters
from headrace.gateway.admission.core.gpu_rates import PoolSpeed
from headrace.gateway.worker_samples import LoadWatch

PAIR = {
    "prefill": half("vllm", "prefill", "http://127.0.0.1:1"),
    "decode": half("vllm", "decode", "http://127.0.0.1:2", pool={"queue": {"sequences": 32}}),
}


class Watched:
    """A worker's parts with some traffic in the window: a hundred prompts of 400 tokens, a quarter of them cached."""

    def __init__(self, pools: dict[str, dict[str, Any]], busy: dict[str, PoolSpeed] | None = None) -> None:
        self.parts = HandoverParts(pools)
        self.counters = Counters()
        self.counters.adopt(("m",))
        self.watch = LoadWatch(
            self.parts.directory, self.parts.placer, self.counters, self.parts.book, lambda: busy or {}
        )
        self.watch.sweep(monotonic() - 100.0)
        counted = self.counters.of("m")
        counted.ended["completed", ""] = 100
        counted.input_tokens, counted.cached_input_tokens, counted.output_tokens = 40_000, 10_000, 5_000

    def load(self) -> ModelLoad:
        (load,) = self.watch.status().models
        return load

    def pace(self, pool: str) -> PoolPace:
        return next(each for each in self.load().pools if each.pool == pool)


async def test_traffic_is_what_came_in_the_window() -> None:
    """Rates are counts by the window's length; what was handed over is the uncached part of it."""
    watched = Watched(PAIR)
    watched.parts.counts.tokens = 20_000.0
    watched.parts.counts.decisions["gain"] = 40
    load = watched.load()
    assert (load.totals.requests, load.totals.decisions) == (100, {"gain": 40})
    assert load.window_s >= 100
    assert load.uncached_tokens_per_s == pytest.approx(30_000 / load.window_s)
    assert load.output_tokens_per_s == pytest.approx(5_000 / load.window_s)
    assert load.handed_tokens_per_s == pytest.approx(15_000 / load.window_s)
    watched.parts.counts.tokens = 1e9  # an estimate that is off hands over no more than there was
    load = watched.load()
    assert load.handed_tokens_per_s == load.uncached_tokens_per_s


async def test_snapshots_are_no_live_counts() -> None:
    """What is counted later does not change what was kept."""
    watched = Watched(PAIR)
    watched.parts.counts.decisions["gain"] = 40
    for hours in (1, 2, 3):
        watched.watch.sweep(monotonic() + 3600.0 * hours)
    watched.parts.counts.decisions["gain"] = 41
    assert watched.load().totals.decisions == {"gain": 1}


async def test_speeds_are_those_that_answers_have_taught() -> None:
    """Prefill by the length of the prompts that came, decode by the most that generated at once."""
    watched = Watched(PAIR)
    watched.parts.learn_speed("prefill", s_per_token=1e-4)
    candidate = watched.parts.placer.candidate_of(watched.parts["decode"])
    assert candidate is not None
    line = candidate.pool.tpot
    line.fixed, line.slope, line.points, candidate.running = 0.02, 0.001, 10, 5
    watched.watch.sweep(monotonic())
    prefill, decode = watched.pace("prefill"), watched.pace("decode")
    assert prefill.prefill_tokens_per_s == pytest.approx(10_000, rel=0.02)
    assert prefill.prefill_tokens_per_s < 10_000
    assert (prefill.prefill_from, prefill.min_tokens) == ("first tokens", 512)
    assert (decode.decode_tokens_per_s, decode.decode_from) == (pytest.approx(5 / 0.025), "answers")
    assert (decode.at_sequences, decode.places) == (5, 32)


async def test_what_is_not_learned_is_none_or_what_is_declared() -> None:
    """The first guesses of routing are no measurement."""
    watched = Watched(PAIR)
    watched.parts.learn_speed()
    for pool in ("prefill", "decode"):
        pace = watched.pace(pool)
        assert (pace.prefill_tokens_per_s, pace.decode_tokens_per_s, pace.at_sequences) == (None, None, None)
    rates = {"rates": {"prefill_tokens_per_s": 9_000, "decode_tokens_per_s": 700}}
    declared = Watched({**PAIR, "decode": half("vllm", "decode", "http://127.0.0.1:2", pool=rates)}).pace("decode")
    assert (declared.prefill_tokens_per_s, declared.prefill_from) == (9_000, "declared")
    assert (declared.decode_tokens_per_s, declared.decode_from) == (700, "declared")


async def test_engines_alone_are_known_by_their_busy_time() -> None:
    """One engine is never chosen from, and routing learns nothing of it: what it did while it had work tells."""
    busy = PoolSpeed()
    for prefill, decode in ((1000, 0), (0, 50), (500, 25), (800, 10), (100, 45), (300, 35)):
        busy.learn(prefill_tokens=prefill, decode_tokens=decode, busy_s=1.0)
    pools = {"alone": half("vllm", None, "http://127.0.0.1:1")}
    pace = Watched(pools, {"alone": busy}).pace("alone")
    assert (pace.role, pace.min_tokens, pace.engines, pace.usable_engines) == ("both", None, 1, 1)
    assert (pace.prefill_from, pace.decode_from) == ("busy time", "busy time")
    assert pace.prefill_tokens_per_s == pytest.approx(1000, rel=0.1)
    assert pace.decode_tokens_per_s == pytest.approx(50, rel=0.1)


async def test_prompts_too_much_alike_teach_no_speed() -> None:
    """A slope of nothing would be a speed without a bound."""
    watched = Watched(PAIR)
    watched.parts.learn_speed("prefill", s_per_token=1e-15)
    assert watched.pace("prefill").prefill_tokens_per_s is None
