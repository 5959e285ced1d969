"""Keeps this worker's leases: one exchange after the other with the shared book, never on a request's path.

The shell of `core/lease_desk.py`, which decides when and what; here is only the clock, the store and the log.
"""

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from time import monotonic

import structlog

from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.local_meters import WallOffset
from headrace.gateway.tasks import spawn
from headrace.tenancy.leases.exchange import MEMBERS_MAX, LeaseStore, StoreLostError

LEAST_S = 0.002
"""Between two exchanges, however urgent: requests that come meanwhile share the next one."""
GOODBYES_MOST = 20
"""Exchanges in which a worker that leaves gives back what it holds: 20 times 128 limits; others expire."""
log = structlog.get_logger("headrace.gateway")


class LeaseKeeper:
    """Owns the desk and the store. Concurrency: event loop only."""

    def __init__(
        self,
        store: LeaseStore,
        *,
        is_open: bool,
        member_s: float,
        workers: int = 1,
        members_file: Path | None = None,
        wall: WallOffset | None = None,
    ) -> None:
        """`workers`: of this instance, which all share. `members_file`: how many shared when the book answered last."""
        self._store = store
        self._members_file = members_file
        self._noted_members = _read_members(members_file)
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.desk = LeaseDesk(
            secrets.token_hex(8),
            is_open=is_open,
            member_s=member_s,
            wake=self._wake.set,
            members=self._noted_members,
            least_members=workers,
            wall=wall,
        )

    async def run(self) -> None:
        """Exchange until cancelled."""
        while True:
            await self.exchange_once()
            await self._pause(self.desk.due_s(monotonic()))

    async def exchange_once(self) -> bool:
        """Make one exchange; False where the book could not be reached."""
        desk = self.desk
        was_lost = bool(desk.trouble)
        message = desk.make_exchange(monotonic())
        self._wake.clear()
        try:
            reply = await self._store.exchange(message)
        except StoreLostError as error:
            desk.lose(str(error), monotonic())
            if not was_lost:
                log.warning("shared limits are out of reach", reason=str(error), members=desk.members)
            return False
        desk.adopt(reply, monotonic())
        if was_lost and not desk.trouble:
            log.info("shared limits are within reach again", members=desk.members)
        if desk.members != self._noted_members and not desk.trouble:
            self._note_members(desk.members)
        return True

    def start(self) -> None:
        """Exchange in the background until `close`."""
        self._running = spawn(self.run(), "lease keeper")

    async def close(self) -> None:
        """Give back what is held, as far as the book can be reached."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])  # An exchange under way must be over: the store takes one at a time.
        for _ in range(GOODBYES_MOST):
            if not self.desk.leave() or not await self.exchange_once():
                break
        await self._store.close()

    def _note_members(self, members: int) -> None:
        """For a successor that cannot reach the book."""
        self._noted_members = members
        if self._members_file is not None:
            beside = self._members_file.with_suffix(f".{os.getpid()}")
            try:
                beside.write_text(f"{members}\n")
                beside.replace(self._members_file)
            except OSError as error:
                log.warning("the number of gateways that share cannot be noted", reason=str(error))

    async def _pause(self, due_s: float) -> None:
        await asyncio.sleep(min(due_s, LEAST_S))
        if due_s > LEAST_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due_s - LEAST_S):
                    await self._wake.wait()


def _read_members(members_file: Path | None) -> int:
    """As an earlier worker of this instance noted it; 1 where none did."""
    if members_file is not None:
        with contextlib.suppress(OSError, ValueError):
            return min(MEMBERS_MAX, max(1, int(members_file.read_text())))
    return 1
