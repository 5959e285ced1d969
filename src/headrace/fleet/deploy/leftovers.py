"""Ends what a lost supervisor has left (`on_supervisor_loss: keep`), for `headrace down` without a supervisor."""

import asyncio
import signal
from dataclasses import dataclass

from headrace.fleet.deploy.engine_process import end_stray, find_adoptable
from headrace.fleet.deploy.predecessors import find_predecessors, forget_worker
from headrace.fleet.deploy.process_watch import try_signal, wait_or_kill
from headrace.settings import Settings

WORKER_STOP_S = 35.0
"""A worker drains by its own plan (30 s by default); beyond this it is killed."""
ENGINE_STOP_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """How many processes were found and ended."""

    workers: int
    engines: int


async def end_leftovers(settings: Settings, *, is_hurried: bool = False) -> Leftovers:
    """End gateway workers first, then engines; none is left afterwards."""
    workers = find_predecessors(settings)
    for worker in workers:
        try_signal(worker.process, signal.SIGKILL if is_hurried else signal.SIGTERM)
    for worker in workers:
        await wait_or_kill(worker.process, WORKER_STOP_S)
        forget_worker(settings, worker.serial)
    found = [find_adoptable(path) for path in settings.run_dir.glob("engine-*.json")]
    engines = [state for state in found if state is not None]
    await asyncio.gather(*(end_stray(state, 0.0 if is_hurried else ENGINE_STOP_S) for state in engines))
    return Leftovers(workers=len(workers), engines=len(engines))
