"""The one timer of all time-outs."""

import asyncio

from headrace.gateway.http.sweeper import Sweeper


async def test_a_sweep_that_fails_stops_no_other() -> None:
    """A bug in one of them leaves the clocks of the others going, round after round."""
    rounds: list[float] = []
    enough = asyncio.Event()

    def broken(now_mono_s: float) -> None:
        raise ZeroDivisionError

    def sound(now_mono_s: float) -> None:
        rounds.append(now_mono_s)
        if len(rounds) == 2:
            enough.set()

    sweeper = Sweeper(asyncio.get_running_loop())
    sweeper.add(broken)
    sweeper.add(sound)
    sweeper.start()
    async with asyncio.timeout(30):
        await enough.wait()
    sweeper.stop()
    assert rounds[0] < rounds[1]
