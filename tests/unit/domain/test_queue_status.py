"""Queues of several workers as one."""

import msgspec

from headrace.domain.queue_status import (
    LONGEST_SHOWN,
    EndpointRoom,
    QueueStatus,
    TenantQueue,
    WaitingRequest,
    merge_queues,
    reason_of,
)


def waiting(request_id: str, since_at: float) -> WaitingRequest:
    return WaitingRequest(
        request_id=request_id,
        tenant="a",
        request_class="standard",
        since_at=since_at,
        waited_s=1.0,
        input_tokens=5,
        deadline_in_s=None,
    )


def status(model: str = "m", *, count: int = 1, places: int | None = 4) -> QueueStatus:
    return QueueStatus(
        model=model,
        pools=("p",),
        waiting=count,
        waiting_bytes=10 * count,
        in_service=2,
        starts_per_s=0.5,
        reason="all 4 places of 1 ready endpoints are taken",
        by_class={"interactive": 0, "standard": count, "offline": 0},
        tenants=(
            TenantQueue(
                tenant="a",
                request_class="standard",
                weight=1.0,
                waiting=count,
                in_service=2,
                oldest_s=float(count),
                served_tokens=7.0,
            ),
        ),
        endpoints=(
            EndpointRoom(endpoint="p/0", state="ready", in_flight=2, places=places, prefill_tokens=3, held_tokens=4),
        ),
        longest=tuple(waiting(f"{model}-{number}", float(number)) for number in range(count)),
        refused={"expired": count},
        degraded={},
        withdrawals=1,
    )


def test_one_worker_is_shown_as_it_is() -> None:
    """With one worker nothing is summed; its number stands beside each request."""
    (merged,) = merge_queues([(3, (status(),))])
    assert [each.worker for each in merged.longest] == [3]
    assert msgspec.structs.replace(merged, longest=()) == msgspec.structs.replace(status(), longest=())


def test_workers_are_summed_by_model_tenant_and_endpoint() -> None:
    """Counts, rates and places add up, the oldest is the oldest of all, and models stay apart."""
    merged = merge_queues([(0, (status(count=1), status("n"))), (1, (status(count=3),)), (2, ())])
    first, second = merged
    assert (first.model, second.model) == ("m", "n")
    assert (first.waiting, first.in_service, first.starts_per_s, first.withdrawals) == (4, 4, 1.0, 2)
    assert (first.by_class["standard"], first.refused) == (4, {"expired": 4})
    assert (first.tenants[0].waiting, first.tenants[0].oldest_s) == (4, 3.0)
    assert (first.endpoints[0].in_flight, first.endpoints[0].places, first.endpoints[0].held_tokens) == (4, 8, 8)
    assert [each.since_at for each in first.longest] == [0.0, 0.0, 1.0, 2.0]


def test_an_endpoint_without_a_bound_in_one_worker_has_none() -> None:
    """Places are only shown where every worker knows a bound; of many waiting requests the longest are shown."""
    (merged,) = merge_queues([(0, (status(places=None),)), (1, (status(count=LONGEST_SHOWN + 5),))])
    assert merged.endpoints[0].places is None
    assert len(merged.longest) == LONGEST_SHOWN


def with_places(in_flight: int, places: int, *, count: int = 1) -> QueueStatus:
    rooms = tuple(
        EndpointRoom(endpoint=f"p/{number}", state="ready", in_flight=in_flight, places=places, prefill_tokens=0,
                     held_tokens=0)
        for number in range(2)
    )  # fmt: skip
    return msgspec.structs.replace(status(count=count), endpoints=rooms, reason=reason_of(rooms, count))


def test_the_reason_is_told_in_the_places_that_are_shown() -> None:
    """With several workers the reason counts the places of all, as the rows of the endpoints do."""
    one = with_places(3, 3)
    assert one.reason == "all 6 places of 2 ready endpoints are taken"
    (full,) = merge_queues([(0, (one,)), (1, (with_places(2, 2),))])
    assert full.reason == "all 10 places of 2 ready endpoints are taken"
    (partly,) = merge_queues([(0, (one,)), (1, (with_places(0, 2, count=0),))])
    assert partly.reason == (
        "the places of 1 of 2 workers are taken, and requests wait there; in all 6 of 10 places are"
    )
    (calm,) = merge_queues([(0, (with_places(0, 2, count=0),)), (1, (with_places(0, 2, count=0),))])
    assert calm.reason == "nothing waits"
