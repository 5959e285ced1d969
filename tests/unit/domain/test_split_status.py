"""Traffic of several gateway workers, added up."""

from headrace.domain.split_status import LoadTotals, ModelLoad, PoolPace, SplitStatus, add_up_loads


def worker(*, requests: int, prompts: int, prefill: float | None, at: int | None) -> SplitStatus:
    pace = PoolPace(
        pool="decode", role="decode", engines=2, usable_engines=2, prefill_tokens_per_s=prefill, prompts=prompts,
        decode_tokens_per_s=None if at is None else 50.0 * at, answers=requests, at_sequences=at, places=64,
    )  # fmt: skip
    load = ModelLoad(
        model="m", window_s=60.0 * requests, requests_per_s=requests / 60, uncached_tokens_per_s=100.0,
        output_tokens_per_s=10.0, handed_tokens_per_s=40.0, pools=(pace,),
        totals=LoadTotals(requests=requests, decisions={"gain": requests, "short": 1}, stage_s={"transfer": 0.5}),
    )  # fmt: skip
    return SplitStatus(workers=1, models=(load,))


def test_traffic_is_summed() -> None:
    """Counts and rates of two workers add up; the window is the longer one."""
    one, two = worker(requests=3, prompts=1, prefill=100.0, at=2), worker(requests=1, prompts=3, prefill=500.0, at=1)
    (load,) = add_up_loads([one, two]).models
    assert (load.totals.requests, load.totals.decisions) == (4, {"gain": 4, "short": 2})
    assert (load.totals.stage_s, load.uncached_tokens_per_s, load.window_s) == ({"transfer": 1.0}, 200.0, 180.0)


def test_what_engines_can_do_is_a_mean_for_prompts_and_a_sum_for_answers() -> None:
    """Each worker has seen whole prompts, and only its own part of what an engine generated at once."""
    one, two = worker(requests=3, prompts=1, prefill=100.0, at=2), worker(requests=1, prompts=3, prefill=500.0, at=1)
    (pace,) = add_up_loads([one, two]).models[0].pools
    assert (pace.prefill_tokens_per_s, pace.decode_tokens_per_s) == (400.0, 150.0)
    assert (pace.at_sequences, pace.places, pace.engines, pace.prompts) == (3, 64, 2, 4)


def test_what_no_worker_has_learned_is_not_known() -> None:
    """None stays None; one worker that knows is enough."""
    none = worker(requests=1, prompts=0, prefill=None, at=None)
    (pace,) = add_up_loads([none, none]).models[0].pools
    assert (pace.prefill_tokens_per_s, pace.decode_tokens_per_s, pace.at_sequences) == (None, None, None)
    (pace,) = add_up_loads([none, worker(requests=1, prompts=3, prefill=500.0, at=1)]).models[0].pools
    assert (pace.prefill_tokens_per_s, pace.decode_tokens_per_s) == (500.0, 50.0)


def test_a_window_is_what_came_since() -> None:
    """Counts before it are taken off, and what did not change is left out."""
    before = LoadTotals(requests=2, decisions={"short": 2}, handed_tokens=10.0)
    now = LoadTotals(requests=5, decisions={"short": 2, "gain": 3}, handed_tokens=25.0)
    assert now.less(before) == LoadTotals(requests=3, decisions={"gain": 3}, handed_tokens=15.0)
    assert before.plus(now.less(before)) == now
