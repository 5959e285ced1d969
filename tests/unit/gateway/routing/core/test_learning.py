"""Lines learned through noisy points."""

from random import Random

from headrace.gateway.routing.core.learning import LineEstimate


def test_the_line_is_found() -> None:
    """Rate and fixed delay of an endpoint are known after some tens of answers, within a tenth."""
    line, chance = LineEstimate(fixed=0.03, slope=1e-4, scale=1000.0), Random(1)
    for _ in range(200):
        x = chance.uniform(100, 20_000)
        line.observe(x, (0.2 + 4e-5 * x) * chance.uniform(0.9, 1.1))
    assert abs(line.slope / 4e-5 - 1) < 0.1
    assert abs(line.predict(10_000) / 0.6 - 1) < 0.1


def test_a_hiccup_moves_little() -> None:
    """One answer that took a hundred times longer does not change what is expected of the next by half."""
    line, chance = LineEstimate(fixed=0.03, slope=1e-4, scale=1000.0), Random(2)
    for _ in range(100):
        x = chance.uniform(100, 20_000)
        line.observe(x, (0.1 + 4e-5 * x) * chance.uniform(0.9, 1.1))
    before = line.predict(5000)
    line.observe(5000, 30.0)
    assert line.predict(5000) < 1.5 * before


def test_a_change_is_followed() -> None:
    """An endpoint that became three times slower is known to be within some hundred answers."""
    line, chance = LineEstimate(fixed=0.03, slope=1e-4, scale=1000.0), Random(3)
    for factor, points in ((1.0, 300), (3.0, 900)):
        for _ in range(points):
            x = chance.uniform(100, 20_000)
            line.observe(x, factor * (0.1 + 4e-5 * x))
    assert abs(line.predict(10_000) / 1.5 - 1) < 0.15


def test_points_that_are_all_alike_leave_it_sane() -> None:
    """Traffic of one size only keeps both numbers bounded and above zero, and predicts that size."""
    line = LineEstimate(fixed=0.03, slope=1e-4, scale=1000.0)
    for _ in range(5000):
        line.observe(800.0, 0.05)
    assert line.fixed >= 0
    assert line.slope > 0
    assert abs(line.predict(800) - 0.05) < 0.005
