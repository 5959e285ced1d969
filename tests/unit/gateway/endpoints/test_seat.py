"""Which endpoints have a place in hand-overs, and what it says."""

from pathlib import Path

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.gateway.endpoints.seat import Seat, Seats
from headrace.gateway.handover.core.slot_book import SlotBook

URL = "http://127.0.0.1:8000"


def seats_of(pools: dict[str, dict[str, object]], *, serial: int = 0, workers: int = 1) -> dict[str, Seat | None]:
    return adopted(Seats(serial, Path("/slots")), pools, workers=workers)


def adopted(seats: Seats, pools: dict[str, dict[str, object]], *, workers: int = 1) -> dict[str, Seat | None]:
    declared = {name: {"model": "m", "endpoints": [URL], **pool} for name, pool in pools.items()}
    declaration = Declaration.model_validate(
        {"models": {"m": {}, "n": {}}, "pools": declared, "gateway": {"workers": workers}}
    )
    plan = compile_gateway_plan(declaration, {}, revision=1)
    seats.adopt(plan)
    return {pool.name: seats.seat_for(pool, URL) for pool in plan.pools}


def role(name: str, engine: str, **handover: object) -> dict[str, object]:
    return {"engine": engine, "disaggregation": {"role": name}, "handover": handover}


def test_without_a_prefill_pool_nobody_has_a_seat() -> None:
    """Nothing is handed over, and nobody asks further."""
    assert seats_of({"a": {"engine": "vllm"}, "b": role("decode", "vllm")}) == {"a": None, "b": None}


def test_each_endpoint_of_the_model_has_a_seat_and_others_have_none() -> None:
    """Halves have roles; an ordinary pool beside them may have its requests split too."""
    found = seats_of({"p": role("prefill", "vllm"), "d": role("decode", "vllm"), "w": {"engine": "vllm"}})
    assert [(seat.can_prefill, seat.can_decode, seat.is_reserve) for seat in found.values() if seat] == [
        (True, False, True),
        (False, True, False),
        (False, False, False),
    ]
    assert seats_of({"p": role("prefill", "vllm"), "other": {"engine": "vllm", "model": "n"}})["other"] is None


def test_halves_of_sglang_answer_nothing_alone_and_meet_at_a_port() -> None:
    """20000 above the engine's own, as headrace starts it, unless another is declared."""
    found = seats_of({"p": role("prefill", "sglang"), "d": role("decode", "sglang", bootstrap_port=8998)})
    prefill, decode = found["p"], found["d"]
    assert prefill is not None
    assert decode is not None
    assert (prefill.serves_whole, prefill.meeting_port, decode.meeting_port) == (False, 28000, 8998)


def test_workers_give_out_slots_of_their_own() -> None:
    """Two workers never name the same slot of llama.cpp; the folder is the declared one, else that of our replicas."""
    pools = {"p": role("prefill", "llamacpp", slots=4), "d": role("decode", "llamacpp", slots=4, folder="/shared")}
    for serial, slots in ((0, (0, 2)), (1, (1, 3)), (2, (0, 2))):
        prefill, decode = seats_of(pools, serial=serial, workers=2).values()
        assert prefill is not None
        assert decode is not None
        assert prefill.slots is not None
        assert prefill.slots.slots == slots
        assert (prefill.folder, decode.folder) == (Path("/slots"), Path("/shared"))


def test_who_has_which_slot_outlives_reloads() -> None:
    """Fewer slots, no roles and then roles again: while a request has a slot of the engine, nobody else is given it."""
    seats, books = Seats(0, Path("/slots")), list[SlotBook]()
    for slots in (2, 1, None, 2):
        plain: dict[str, object] = {"engine": "llamacpp"}
        seat = adopted(seats, {"p": role("prefill", "llamacpp", slots=slots) if slots else plain})["p"]
        if slots is None:
            assert seat is None
            continue
        assert seat is not None
        assert seat.slots is not None
        books.append(seat.slots)
        if len(books) == 1:
            assert seat.slots.try_claim() == 0
    assert books[0] is books[1]
    assert books[0] is books[2]
    assert (books[0].try_claim(), books[0].try_claim()) == (1, None)
