import asyncio
from pathlib import Path

import structlog
from structlog.testing import capture_logs

from headrace.domain.clock import SystemClock
from headrace.domain.quota import Level, LimitId, Unit
from headrace.fleet.deploy.coordinator import Coordinator
from headrace.gateway.admission.sharing.keeper import LeaseKeeper
from headrace.tenancy.leases.unix_store import UnixStore

LIMIT = LimitId(Level.TENANT, "t", Unit.REQUESTS_PER_MIN)


def keeper_at(path: Path) -> LeaseKeeper:
    return LeaseKeeper(UnixStore(path, timeout_s=30), is_open=True, member_s=float("inf"))


async def test_a_loss_is_logged_once_and_heals(tmp_path: Path) -> None:
    """A coordinator that is not there is one line in the log however long it lasts, and one when it is back."""
    path = tmp_path / "leases.sock"
    keeper = keeper_at(path)
    with capture_logs() as lines:
        assert [await keeper.exchange_once() for _ in range(3)] == [False] * 3
        coordinator = Coordinator(path, SystemClock(), structlog.get_logger())
        await coordinator.open()
        assert await keeper.exchange_once()
    await keeper.close()
    await coordinator.close()
    assert [line["log_level"] for line in lines] == ["warning", "info"]
    assert "leases.sock" in lines[0]["reason"]
    assert (keeper.desk.failures, keeper.desk.losses) == (3, 1)


async def test_a_request_in_need_is_fed_at_once(tmp_path: Path) -> None:
    """Whoever waits for a share is called back by the exchange that it caused; what is left goes back at the end."""
    coordinator = Coordinator(tmp_path / "leases.sock", SystemClock(), structlog.get_logger())
    await coordinator.open()
    keeper = keeper_at(coordinator.path)
    keeper.start()
    now_mono_s = SystemClock().mono_s
    meter = keeper.desk.meter(LIMIT, 10, now_mono_s())
    fed = asyncio.Event()
    async with asyncio.timeout(30):
        while meter.wait_s(1, now_mono_s()) > 0.0:
            fed.clear()
            if keeper.desk.await_share(meter, now_mono_s(), fed.set):
                await fed.wait()
    pot = coordinator.book.find_pot("tenant:requests_per_min:t")
    assert pot is not None
    assert pot.held > 0
    await keeper.close()
    assert pot.held == 0
    await coordinator.close()


async def test_closing_waits_for_the_exchange_under_way(tmp_path: Path) -> None:
    """A worker that is stopped in the middle of an exchange with a slow coordinator ends in order."""
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(never_answer, str(tmp_path / "leases.sock"))
    keeper = LeaseKeeper(UnixStore(tmp_path / "leases.sock", timeout_s=0.2), is_open=True, member_s=float("inf"))
    keeper.desk.meter(LIMIT, 10, 0.0).take(1, 0.0)
    keeper.start()
    async with asyncio.timeout(30):
        await asked.wait()
        await keeper.close()
    server.close()


async def test_a_successor_knows_how_many_shared(tmp_path: Path) -> None:
    """A worker that begins while the store is away takes its part as one of those that shared before; a file that
    says nothing is as none.
    """
    noted = tmp_path / "sharing-members"
    coordinator = Coordinator(tmp_path / "leases.sock", SystemClock(), structlog.get_logger())
    await coordinator.open()
    keepers = [
        LeaseKeeper(UnixStore(coordinator.path, timeout_s=30), is_open=True, member_s=float("inf"), members_file=noted)
        for _ in range(3)
    ]
    for keeper in keepers:
        assert await keeper.exchange_once()
    await coordinator.close()
    for keeper in keepers:
        await keeper.close()
    for text, among in ((noted.read_text(), 3), ("rubbish", 2), ("-4", 2)):
        noted.write_text(text)
        late = LeaseKeeper(
            UnixStore(coordinator.path, timeout_s=30),
            is_open=True,
            member_s=float("inf"),
            workers=2,
            members_file=noted,
        )
        assert not await late.exchange_once()
        assert late.desk.alone_among == among
        await late.close()
