"""The line of those who wait."""

from tests.unit.simulation.runs import request

from headrace.simulation.model import AdmissionOrder
from headrace.simulation.sequence import LiveSequence
from headrace.simulation.waiting import WaitingLine, line_for


def waiting(name: str, order: int, **fields) -> LiveSequence:
    return LiveSequence(request(name, prompt=10, **fields), order, 0.0, 100)


def drain(line: WaitingLine) -> list[str]:
    names = []
    while len(line):
        sequence = line.peek()
        line.remove(sequence)
        names.append(sequence.request_id)
    return names


def test_a_preempted_request_goes_before_those_that_never_ran() -> None:
    """Preempted newest first, they stand in the order of their arrival again."""
    line = line_for(AdmissionOrder.FCFS)
    line.add(waiting("c", 2))
    for name, order in (("b", 1), ("a", 0)):
        sequence = waiting(name, order)
        sequence.preemptions = 1
        line.add(sequence)

    assert line.prompt_tokens == 30
    assert drain(line) == ["a", "b", "c"]
    assert line.prompt_tokens == 0


def test_priorities_and_then_arrival() -> None:
    """One who left and came back under the same name stands where the second request says."""
    line = line_for(AdmissionOrder.PRIORITY)
    gone = waiting("x", 0, priority=0)
    line.add(gone)
    line.add(waiting("y", 1, priority=1))
    line.remove(gone)
    line.add(waiting("x", 2, priority=2))
    line.add(waiting("z", 3, priority=1))

    assert drain(line) == ["y", "z", "x"]
