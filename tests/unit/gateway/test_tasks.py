"""Tasks that must go on."""

import asyncio

import pytest
import structlog.testing

from headrace.gateway import tasks
from headrace.gateway.tasks import keep


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)


async def test_what_dies_is_started_again_and_said_so() -> None:
    """Following an endpoint ends with its endpoint, never with a bug; each death is in the log, with the pause."""
    lives: list[int] = []

    async def live() -> None:
        lives.append(len(lives))
        if len(lives) < 4:
            raise OverflowError("a wild number")

    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(30):
            await keep(live, "follow p/a")
    assert lives == [0, 1, 2, 3]
    assert [(line["task"], line["pause_s"]) for line in logs] == [("follow p/a", 0.01 * 2**turn) for turn in range(3)]


async def test_the_pauses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that dies at once each time is still tried again within the bound."""
    monkeypatch.setattr(tasks, "AGAIN_MOST_S", 0.02)
    left = iter(range(5))

    async def live() -> None:
        if next(left, None) is not None:
            raise ExceptionGroup("several", [ValueError()])

    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(30):
            await keep(live, "follow")
    assert [line["pause_s"] for line in logs] == [0.01, 0.02, 0.02, 0.02, 0.02]


async def test_who_cancels_it_ends_it() -> None:
    """Between two lives as well as in one: nothing is started afterwards."""
    lives: list[int] = []

    async def live() -> None:
        lives.append(0)
        if len(lives) == 1:
            raise ValueError
        await asyncio.sleep(3600)

    with structlog.testing.capture_logs():
        task = keep(live, "follow")
        async with asyncio.timeout(30):
            while len(lives) < 2:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (task.cancelled(), len(lives)) == (True, 2)
