"""Faults: how they are written, and when they happen."""

import re
from pathlib import Path

import msgspec
import pytest

from headrace.engines.simulated.faults import Cut, Fault, FaultBook, FaultKind, parse_fault


def test_a_fault_is_written_in_one_word():
    """`--fault cut:after_tokens=5,how=rst,count=1`."""
    assert parse_fault("cut:after_tokens=5,how=rst,count=1") == Fault(
        kind=FaultKind.CUT, after_tokens=5, how=Cut.RST, count=1
    )
    assert parse_fault("slow:factor=2.5,duration_s=3").factor == 2.5
    assert parse_fault("refuse") == Fault(kind=FaultKind.REFUSE)


@pytest.mark.parametrize(
    "text",
    ["", "bang", "cut:", "cut:after", "cut:speed=3", "cut:after_tokens=-1", "error:status=200", "slow:factor=0",
     "stall:stall_s=90000", "cut:probability=1.5", "cut:count=-1"],
)  # fmt: skip
def test_a_fault_that_makes_no_sense_is_refused(text: str):
    """Unknown kinds, unknown names and values out of bounds all say so."""
    if text == "cut:":
        assert parse_fault(text).kind is FaultKind.CUT
        return
    with pytest.raises(ValueError, match=r".+"):
        parse_fault(text)


def test_a_count_is_used_up():
    """At 0 it never happens, at 2 it happens twice."""
    for count in (0, 1, 2):
        book = FaultBook()
        book.put([Fault(kind=FaultKind.ERROR, count=count)], 0)
        assert sum(book.draw(FaultKind.ERROR, 0) is not None for _ in range(5)) == count


def test_a_duration_ends():
    """It happens until it is over, and not at that moment."""
    book = FaultBook()
    book.put([Fault(kind=FaultKind.SLOW, duration_s=10)], 100)
    assert book.active(FaultKind.SLOW, 109.9)
    assert book.active(FaultKind.SLOW, 110) is None
    assert book.next_change_s(104) == 6
    assert book.next_change_s(120) is None


def test_chance_is_the_same_in_every_run_and_about_right():
    """The draws come from the seed."""
    counts: list[int] = []
    for _ in range(2):
        book = FaultBook(seed=3)
        book.put([Fault(kind=FaultKind.CUT, probability=0.3)], 0)
        counts.append(sum(book.draw(FaultKind.CUT, 0) is not None for _ in range(1000)))
    assert counts[0] == counts[1]
    assert 240 < counts[0] < 360


def test_another_kind_is_not_drawn():
    """A fault is only what it says."""
    book = FaultBook()
    book.put([Fault(kind=FaultKind.CUT)], 0)
    assert book.draw(FaultKind.STALL, 0) is None


def test_the_book_shows_what_happened():
    """GET /sim/faults tells how often, and whether it still may."""
    book = FaultBook()
    book.put([Fault(kind=FaultKind.ERROR, count=1)], 0)
    book.draw(FaultKind.ERROR, 0)
    shown = book.view(0)[0]
    assert (shown["kind"], shown["happened"], shown["is_active"]) == ("error", 1, False)


def test_unknown_members_of_a_posted_fault_are_refused():
    """A slip in a member's name does not silently do nothing."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "cut", "after": 3}, Fault)


def test_the_docs_name_every_kind():
    """docs/simulated-engine.md has a row for each fault, and none that is not one."""
    page = (Path(__file__).parents[4] / "docs" / "simulated-engine.md").read_text()
    rows = [line for line in page.partition("| kind |")[2].partition("## ")[0].splitlines() if line.startswith("| `")]
    named = {kind for line in rows for kind in re.findall(r"`([a-z-]+)`", line.split("|")[1])}
    assert named == set(FaultKind)
