"""The last hour of counts."""

from headrace.domain.split_status import LoadTotals
from headrace.gateway.load_window import STEP_S, WINDOW_S, LoadWindow


def totals(requests: int) -> dict[str, LoadTotals]:
    return {"m": LoadTotals(requests=requests)}


def test_before_the_first_snapshot_all_is_new() -> None:
    """A worker that has just started shows what came since."""
    window = LoadWindow()
    assert (window.window_s(5.0), window.since("m", LoadTotals(requests=2)).requests) == (0.0, 2)
    assert window.is_due(5.0)


def test_the_window_is_an_hour_and_forgets_what_came_before() -> None:
    """Counts older than the window are taken off; it is at most a step longer."""
    window = LoadWindow()
    for step in range(30):
        at_mono_s = step * STEP_S
        assert window.is_due(at_mono_s)
        window.keep(totals(10 * step), at_mono_s)
        assert not window.is_due(at_mono_s + STEP_S - 1)
    now_mono_s = 29 * STEP_S + 60
    assert WINDOW_S <= window.window_s(now_mono_s) <= WINDOW_S + STEP_S
    assert window.since("m", LoadTotals(requests=295)).requests == 295 - 10 * 17
    assert window.since("new", LoadTotals(requests=4)).requests == 4


def test_the_peak_is_that_of_the_window() -> None:
    """What generated at once before the window is forgotten, what is seen now counts at once."""
    window = LoadWindow()
    assert window.peak("p") is None
    window.note_running("p", 9)
    window.keep({}, 0.0)
    assert window.peak("p") is None
    window.note_running("p", 4)
    window.note_running("p", 3)
    assert window.peak("p") == 4
    window.keep({}, STEP_S)
    assert window.peak("p") == 4
    for step in range(2, 30):
        window.keep({}, step * STEP_S)
    assert window.peak("p") is None
