"""What several gateway workers see, as one status."""

from headrace.domain.routing_status import HandoverFit
from headrace.domain.worker import WorkerStatus
from headrace.wiring.status_view import handover_fits


def worker(*fits: HandoverFit) -> WorkerStatus:
    return WorkerStatus(
        pid=1, version="1", plan_revision=1, is_ready=True, is_draining=False, in_flight=0, connections=0, requests=0,
        endpoints=(), journal_dropped=0, handovers=fits,
    )  # fmt: skip


def test_the_worker_that_keeps_most_pairs_apart_is_believed() -> None:
    """One that has not asked an engine yet knows less, not better."""
    early = HandoverFit(model="m", fits=0, unfit=0, not_measured=2)
    late = HandoverFit(model="m", fits=1, unfit=1, not_measured=0)
    other = HandoverFit(model="a", fits=1, unfit=0, not_measured=0)
    for workers in ([worker(early), worker(late, other)], [worker(late, other), worker(early)]):
        assert handover_fits(workers) == (other, late)
    assert handover_fits([]) == ()
