"""Waiting for what becomes so, with a deadline that only a broken program misses, never a slow machine."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 60.0
POLL_S = 0.02


def wait_until(is_so: Callable[[], object], what: str, bound_s: float = DEADLINE_S) -> None:
    """Look again and again; `what` names it where it never becomes so."""
    end_mono_s = time.monotonic() + bound_s
    while not is_so():
        assert time.monotonic() < end_mono_s, f"still waiting for {what}"
        time.sleep(POLL_S)


async def until(is_so: Callable[[], object | Awaitable[object]], bound_s: float = DEADLINE_S, what: str = "") -> None:
    """The same on an event loop; `is_so` may have to be awaited."""
    end_mono_s = time.monotonic() + bound_s
    while True:
        found = is_so()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < end_mono_s, f"still waiting for {what or 'what never became so'}"
        await asyncio.sleep(POLL_S)
