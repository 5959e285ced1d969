"""Why prompts missed, of several workers."""

from headrace.domain.miss_status import ADVICE, MissCause, MissRow, MissStatus, add_up_misses


def worker(family: str, *, lost: int) -> MissStatus:
    row = MissRow(
        model="m", tenant="t", alike=family, cause=MissCause.TIMESTAMP, place="messages[0].content (system)",
        message=0, field="content", byte_offset=lost, grain_bytes=20, token_offset=1, endpoint="p/0", requests=3,
        tokens_lost=lost,        tokens_lost_per_hour=lost * 2.0, advice=ADVICE[MissCause.TIMESTAMP],
    )  # fmt: skip
    return MissStatus(workers=1, answers=9, examined=8, explained=3, kept_bytes=100, cpu_s=0.5, rows=(row,))


def test_workers_are_added_up() -> None:
    """The same row of two workers is one, with the place of the larger; other rows come in order of loss."""
    found = add_up_misses([worker("a", lost=10), worker("a", lost=30), worker("b", lost=50)])
    assert (found.workers, found.answers, found.examined, found.kept_bytes, found.cpu_s) == (3, 27, 24, 300, 1.5)
    assert [(row.alike, row.requests, row.tokens_lost, row.byte_offset) for row in found.rows] == [
        ("b", 3, 50, 50),
        ("a", 6, 40, 30),
    ]


def test_every_cause_has_advice() -> None:
    """No cause is shown without saying what to do."""
    assert set(ADVICE) == set(MissCause)
