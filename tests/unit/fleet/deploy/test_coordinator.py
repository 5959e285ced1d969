import asyncio
import stat
from pathlib import Path

import pytest
import structlog

from headrace.domain.clock import SystemClock
from headrace.fleet.deploy.coordinator import coordinating
from headrace.tenancy.leases.exchange import Exchange, LeaseKind, LeaseReport, StoreLostError
from headrace.tenancy.leases.unix_store import UnixStore

ALL = LeaseReport("l", LeaseKind.SLOTS, 4, 0, 4, 1, 4)


async def test_a_worker_that_hangs_up_gives_its_slots_free(tmp_path: Path) -> None:
    """When a worker's connection ends, its slots go to others without any time-out of minutes."""
    async with coordinating(tmp_path / "leases.sock", SystemClock(), structlog.get_logger()) as coordinator:
        coordinator.linger_s = 0.01
        one, other = UnixStore(coordinator.path, timeout_s=30), UnixStore(coordinator.path, timeout_s=30)
        assert (await one.exchange(Exchange("one", 1, "", 0, (ALL,)))).answers[0].grant == 4
        await one.close()
        serial = 0
        async with asyncio.timeout(30):
            while True:
                serial += 1
                reply = await other.exchange(Exchange("other", serial, "", 0, (ALL,)))
                if reply.answers[0].grant == 4:
                    break
                await asyncio.sleep(0.01)
        await other.close()


async def test_a_worker_that_comes_back_at_once_keeps_its_slots(tmp_path: Path) -> None:
    """A broken connection of a living worker costs nothing: it is back before its slots are given away."""
    async with coordinating(tmp_path / "leases.sock", SystemClock(), structlog.get_logger()) as coordinator:
        coordinator.linger_s = 0.05
        one, again = UnixStore(coordinator.path, timeout_s=30), UnixStore(coordinator.path, timeout_s=30)
        await one.exchange(Exchange("one", 1, "", 0, (ALL,)))
        await again.exchange(Exchange("one", 2, "", 0, ()))
        await one.close()
        await asyncio.sleep(0.2)  # longer than it lingers
        assert coordinator.book.members == 1
        await again.close()


async def test_only_our_user_may_ask(tmp_path: Path) -> None:
    """The socket is closed to others, and gone when the supervisor is."""
    path = tmp_path / "leases.sock"
    path.write_text("left by an earlier process")
    async with coordinating(path, SystemClock(), structlog.get_logger()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_nonsense_is_hung_up_on(tmp_path: Path) -> None:
    """A process that speaks something else loses its connection; the others do not notice."""
    async with coordinating(tmp_path / "leases.sock", SystemClock(), structlog.get_logger()) as coordinator:
        reader, writer = await asyncio.open_unix_connection(str(coordinator.path))
        writer.write(b"\xff\xff\xff\xffGET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        store = UnixStore(coordinator.path, timeout_s=30)
        assert (await store.exchange(Exchange("one", 1, "", 0, ()))).members == 1
        await store.close()
    with pytest.raises(StoreLostError):
        await store.exchange(Exchange("one", 2, "", 0, ()))
