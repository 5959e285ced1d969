"""What several gateway workers see, as one status."""

from tests.harness.running_gateway import declare, remote_pool

from headrace.control_api.operations import EndpointSummary
from headrace.domain.routing_status import HandoverFit
from headrace.domain.worker import WorkerStatus
from headrace.wiring.status_view import READY, handover_fits, model_summaries, waiting_for


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


def endpoint(pool: str, state: str, reason: str) -> EndpointSummary:
    return EndpointSummary(
        endpoint=f"{pool}/e", pool=pool, model=pool, engine="vllm", url="", state=state, reason=reason, since_at=0.0,
        in_flight=0, requests=0, failures=0,
    )  # fmt: skip


def test_a_model_without_a_ready_endpoint_is_waited_for_with_the_reason() -> None:
    """Whoever reads one line of the status knows which model cannot answer, and what is wrong with its endpoint."""
    pools = {name: remote_pool("http://127.0.0.1:9", model=name) for name in ("a", "b")}
    declaration = declare(pools, models={"a": {}, "b": {}})
    good, bad = endpoint("a", "ready", "answers probes"), endpoint("b", "not-ready", "no such model")
    waits_for = waiting_for(model_summaries(declaration, (), (good, bad)))
    assert waits_for == "b: no endpoint ready: b/e is not-ready: no such model"
    assert waiting_for(model_summaries(declaration, (), (good, endpoint("b", "busy", "slow")))) == READY
