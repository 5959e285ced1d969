"""Virtual time: many engines over many arrivals give what single steps give, in order, and repeatably."""

import itertools

import pytest
from tests.unit.simulation.runs import Run, request, small_model

from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.model import CacheKind, Speculation
from headrace.simulation.outcome import FinishReason, RefusalReason
from headrace.simulation.virtual_time import RequestRecord, VirtualFleet

ARRIVALS = [
    (at_s, request(f"r{index}", prompt=3 + index % 11, output=1 + (index * 7) % 19, reply_tokens=tuple(range(19))))
    for index, at_s in enumerate((0.0, 0.0, 0.5, 3.2, 3.3, 9.0, 9.1, 9.2, 9.3, 30.0, 31.0, 31.5, 32.0, 60.0))
]


def run_fleet(model, arrivals, engines: int = 1) -> list[RequestRecord]:
    turn = iter(range(1000))
    fleet = VirtualFleet([SimulatedEngine(model) for _ in range(engines)], lambda _at, _request: next(turn) % engines)
    return list(fleet.run(arrivals))


def run_step_by_step(model, arrivals) -> tuple[SimulatedEngine, Run]:
    """The plain way: one step after the other, arrivals seen between steps."""
    engine, run, left = SimulatedEngine(model), Run(), list(arrivals)
    while True:
        while left and left[0][0] <= run.now_s:
            engine.submit(left[0][1], left.pop(0)[0])
        step = engine.step(run.now_s)
        if step is not None:
            run.take(step)
        elif left:
            run.now_s = left[0][0]
        else:
            return engine, run


@pytest.mark.parametrize("kind", CacheKind)
@pytest.mark.parametrize("blocks", [10, 64], ids=["scarce", "ample"])
@pytest.mark.parametrize("drafts", [0, 2])
def test_stretches_give_the_same_times_as_single_steps(kind: CacheKind, blocks: int, drafts: int) -> None:
    """Taking many decode steps at once changes no first token, no end and no count."""
    model = small_model(
        kind=kind,
        block_tokens=1 if kind is CacheKind.SLOTS else 4,
        blocks=blocks * 4 if kind is CacheKind.SLOTS else blocks,
        speculation=Speculation(draft_tokens=drafts, acceptance_ratio=0.5) if drafts else None,
    )
    _engine, run = run_step_by_step(model, ARRIVALS)

    records = {record.request_id: record for record in run_fleet(model, ARRIVALS)}

    assert records.keys() == run.finish.keys()
    for name, record in records.items():
        assert record.first_token_at_s == pytest.approx(run.first_at_s[name])
        assert record.ended_at_s == pytest.approx(run.end_at_s[name])
        assert record.output_tokens == run.tokens[name]
        assert record.finish_reason == run.finish[name]


def test_records_come_in_the_order_of_their_ends() -> None:
    """Whoever reads the records sees virtual time go forward."""
    ends = [record.ended_at_s for record in run_fleet(small_model(), ARRIVALS, engines=3)]

    assert ends == sorted(ends)
    assert len(ends) == len(ARRIVALS)


def test_a_run_can_be_repeated_exactly() -> None:
    """The same arrivals give the same records, to the last digit."""
    model = small_model(blocks=12, speculation=Speculation(draft_tokens=2, acceptance_ratio=0.7, seed=5))

    assert run_fleet(model, ARRIVALS, engines=2) == run_fleet(model, ARRIVALS, engines=2)


def test_a_refused_request_has_a_record_too() -> None:
    """A full queue or a long prompt is an answer, not a gap in the data."""
    records = run_fleet(small_model(), [(1.0, request("long", prompt=200))])

    assert records[0].refusal is not None
    assert records[0].refusal.reason is RefusalReason.CONTEXT_TOO_LONG
    assert records[0].ttft_s is None


def test_an_answer_may_bring_the_next_request() -> None:
    """A conversation sends its next turn when the last one has been answered."""
    turns = {"turn-1": "turn-2", "turn-2": "turn-3"}

    def reply(now_s: float, record: RequestRecord):
        following = turns.get(record.request_id)
        return [(now_s + 2.0, request(following, prompt=6))] if following else []

    fleet = VirtualFleet([SimulatedEngine(small_model())], lambda _at, _request: 0, reply)
    records = list(fleet.run([(0.0, request("turn-1", prompt=6))]))

    assert [record.request_id for record in records] == ["turn-1", "turn-2", "turn-3"]
    for before, after in itertools.pairwise(records):
        assert after.arrived_at_s == pytest.approx(before.ended_at_s + 2.0)


def test_load_shows_the_steps_that_have_ended() -> None:
    """A router that asks in the middle of a long stretch sees the KV that is used by then."""
    seen: list[int] = []
    engine = SimulatedEngine(small_model())
    fleet = VirtualFleet([engine], lambda at_s, _request: seen.append(fleet.load(0, at_s).kv_blocks_used) or 0)

    records = list(fleet.run([(0.0, request("a", prompt=4, output=40)), (20.0, request("b", prompt=4, output=1))]))

    assert seen[0] == 0
    assert seen[1] >= 4
    assert all(record.finish_reason is FinishReason.STOP for record in records)


def test_ttft_and_tpot_make_up_the_whole() -> None:
    """End-to-end time is the first token's plus the gaps'."""
    record = run_fleet(small_model(), [(5.0, request("a", prompt=8, output=5))])[0]

    assert record.ended_at_s - record.arrived_at_s == pytest.approx(record.ttft_s + 4 * record.tpot_s)
