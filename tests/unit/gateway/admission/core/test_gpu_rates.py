"""GPU time of requests: declared speeds, and learned ones against an engine that is known."""

import random

import pytest

from headrace.gateway.admission.core.gpu_rates import LEARNED_LOOKS, PoolSpeed


def test_declared_speeds_hold() -> None:
    """Input over prefill speed and output over decode speed, on all devices; cached input takes no time."""
    speed = PoolSpeed()
    assert (speed.is_known, speed.gpu_s(input_tokens=1, cached_input_tokens=0, output_tokens=1)) == (False, None)
    speed.declare(prefill_tokens_per_s=10_000.0, decode_tokens_per_s=1000.0, devices=4)
    assert speed.gpu_s(input_tokens=1000, cached_input_tokens=400, output_tokens=100) == pytest.approx(4 * 0.16)
    assert speed.gpu_s(input_tokens=1000, cached_input_tokens=9999, output_tokens=0) == 0.0


def test_speeds_are_learned_and_add_up_to_the_busy_time() -> None:
    """From sums of tokens and busy seconds alone, prefill and decode are told apart within a tenth."""
    chance = random.Random(7)
    speed = PoolSpeed()
    attributed = busy = 0.0
    for look in range(200):
        prefill, decode = chance.randrange(20_000, 200_000), chance.randrange(1000, 20_000)
        busy_s = (prefill / 20_000 + decode / 2000) * chance.uniform(0.95, 1.05)
        if look >= 100:
            attributed += speed.gpu_s(input_tokens=prefill, cached_input_tokens=0, output_tokens=decode) or 0.0
            busy += busy_s
        speed.learn(prefill_tokens=prefill, decode_tokens=decode, busy_s=busy_s)
    assert speed.prefill_s == pytest.approx(1 / 20_000, rel=0.1)
    assert speed.decode_s == pytest.approx(1 / 2000, rel=0.1)
    assert attributed == pytest.approx(busy, rel=0.02)


def test_an_engine_whose_traffic_never_varies_still_adds_up() -> None:
    """Prefill and decode cannot be told apart then; their sum can."""
    speed = PoolSpeed()
    for _ in range(50):
        speed.learn(prefill_tokens=1000, decode_tokens=1000, busy_s=4.0)
    assert speed.gpu_s(input_tokens=1000, cached_input_tokens=0, output_tokens=1000) == pytest.approx(4.0, rel=0.02)


def test_what_is_declared_is_not_learned_over() -> None:
    """A reload that gives one of the two speeds keeps what was learned of the other."""
    speed = PoolSpeed()
    for _ in range(LEARNED_LOOKS):
        speed.learn(prefill_tokens=0, decode_tokens=1000, busy_s=1.0)
    assert (speed.is_known, speed.is_declared) == (True, False)
    speed.declare(prefill_tokens_per_s=500.0, decode_tokens_per_s=None, devices=1)
    assert (speed.prefill_s, speed.decode_s) == (0.002, pytest.approx(0.001, rel=0.05))
    speed.learn(prefill_tokens=0, decode_tokens=0, busy_s=5.0)
    assert speed.decode_s == pytest.approx(0.001, rel=0.05)
