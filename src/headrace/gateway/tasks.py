"""The one place where a bare task is started: it is kept referenced, and its error is logged, never lost.

What must never end while it is wanted, such as following one endpoint, is started again when it has died.
"""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import structlog

AGAIN_S = 1.0
"""Before a task that died is started again; twice as long after each death. Chosen."""
AGAIN_MOST_S = 60.0
"""Longest such pause; a task that lived for longer than this begins with AGAIN_S anew. Chosen."""
log = structlog.get_logger("headrace.gateway")
_running: set[asyncio.Task[Any]] = set()


def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run `coroutine` in the background until it ends or is cancelled."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_finished)
    return task


def keep(make: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Run what `make` returns in the background until it ends or is cancelled; made and run again where it fails."""
    return spawn(_again_and_again(make, name), name)


async def _again_and_again(make: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    pause_s = AGAIN_S
    while True:
        begun_mono_s = monotonic()
        try:
            await make()
            return
        except Exception as error:  # the boundary of this task
            if monotonic() - begun_mono_s > AGAIN_MOST_S:
                pause_s = AGAIN_S
            log.exception("task failed; it is started again", task=name, error=repr(error), pause_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(AGAIN_MOST_S, 2 * pause_s)


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task failed", task=task.get_name(), error=repr(error), exc_info=error)
