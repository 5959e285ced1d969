"""Watching how long replicas are busy."""

import pytest

from headrace.gateway.admission.core.gpu_rates import PoolSpeed
from headrace.gateway.admission.gpu_clock import LOOK_S, GpuClock


def test_busy_time_and_tokens_become_a_speed() -> None:
    """A pool whose two replicas make 100 tokens a second each, half of the time."""
    clock, speeds, now_s = GpuClock(), {"p": PoolSpeed()}, 0.0
    while not speeds["p"].is_known:
        clock.tick({"p": 2} if int(now_s) % 2 == 0 else {}, speeds, now_s)
        if int(now_s * 4) % 4 == 3 and int(now_s) % 2 == 0:
            clock.count("p", 0, 200)
        now_s += 0.25
        assert now_s < 100 * LOOK_S
    assert speeds["p"].gpu_s(input_tokens=0, cached_input_tokens=0, output_tokens=100) == pytest.approx(1.0, rel=0.15)


def test_declared_pools_and_those_that_are_gone_are_not_watched() -> None:
    """Nothing is kept of them, and nothing changes what was declared."""
    speed = PoolSpeed()
    speed.declare(prefill_tokens_per_s=1000.0, decode_tokens_per_s=100.0, devices=1)
    clock = GpuClock()
    for turn in range(500):
        clock.count("p", 10, 10)
        clock.count("gone", 10, 10)
        clock.tick({"p": 1, "gone": 1}, {"p": speed}, turn * 0.25)
    assert speed.decode_s == 0.01
