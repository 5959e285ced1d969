"""What `headrace queue` prints."""

import msgspec
import pytest
from rich.console import Console
from tests.unit.cli.conftest import Run
from tests.unit.domain.test_queue_status import status

from headrace.cli.queue import only_of, queue_view
from headrace.domain.operator_error import UnknownNameError
from headrace.domain.queue_status import QueueStatus


def shown(*found: QueueStatus) -> str:
    console = Console(width=220, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(queue_view(found))
    return capture.get()


def test_who_waits_and_why_is_on_one_screen() -> None:
    """The model's line has counts, reason, rate and refusals; tenants, endpoints and requests have a row each."""
    text = shown(status(count=2))
    line = text.splitlines()[0]
    assert "m: 2 waiting, 2 in service; all 4 places of 1 ready endpoints are taken; 0.5 start a second" in line
    assert "refused since start: 2 expired" in line
    assert any(row.split()[:5] == ["a", "standard", "1", "2", "2"] for row in text.splitlines())
    assert any(row.split()[:4] == ["p/0", "ready", "2", "4"] for row in text.splitlines())
    assert any(row.split()[:3] == ["m-1", "a", "standard"] for row in text.splitlines())


def test_what_is_not_known_is_said() -> None:
    """An endpoint without a bound, figures that are too old, and a rate that was not measured are named as such."""
    found = status(places=None)
    old = msgspec.structs.replace(found.endpoints[0], engine_running=3.0, measured_age_s=99.0)
    text = shown(msgspec.structs.replace(found, endpoints=(old,), starts_per_s=None))
    assert "no bound known" in text
    assert "99.0 (too old: own counts hold)" in text
    assert "how fast they start is not measured yet" in text
    assert "No models are declared." in shown()


def test_nothing_running_is_said(run: Run) -> None:
    """Without an instance the verb says how to start one."""
    ran = run("queue")
    assert ran.code == 1
    assert "headrace up" in ran.err


def test_a_model_that_is_not_there_is_named() -> None:
    """Not taken for a declaration without models; the hint says which there are."""
    found = (status(),)
    assert only_of(None, found) == only_of("m", found) == found
    with pytest.raises(UnknownNameError) as refused:
        only_of("qwen", found)
    assert str(refused.value) == 'there is no model "qwen"\nThere are: m.'
