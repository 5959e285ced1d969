"""Batches that cannot go on."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headrace.batch import desk as desk_module
from headrace.batch.desk import VALIDATIONS, BatchDesk
from headrace.batch.objects import BatchStatus, StoredBatch
from headrace.batch.runner import BatchRunner
from headrace.batch.sender import LineSender
from headrace.batch.store import BatchStore
from headrace.declaration.batch_section import BatchPlan
from headrace.domain.batch import Submitter
from headrace.domain.clock import SystemClock

PLAN = BatchPlan(
    enabled=True,
    file_bytes=10**6,
    stored_bytes=10**6,
    lines=10,
    open_batches=10,
    concurrency=1,
    window_s=3600,
    retention_days=1,
    line_bytes=10_000,
)
BROKEN = msgspec.structs.replace(PLAN, line_bytes="many")  # a bug of ours: it is added to a number


async def look_after(folder: Path, plan: BatchPlan, content: bytes | None, until: Callable[[BatchStore], bool]) -> None:
    """Validate one batch until it is as expected; the desk looks at it again as often as it likes."""
    store, clock = BatchStore(folder), SystemClock()
    store.put_batch(
        StoredBatch(
            batch_id="batch_1",
            submitter=Submitter(tenant="t", key_id="k"),
            endpoint="/v1/chat/completions",
            input_file_id="file-1",
            completion_window="1h",
            created_at=clock.wall_s(),
            expires_at=clock.wall_s() + 3600,
            output_file_id="file-2",
            error_file_id="file-3",
        )
    )
    if content is not None:
        store.path_of("file-1").write_bytes(content)
    sender, slots = LineSender(folder), asyncio.Semaphore(1)
    desk = BatchDesk(store, lambda batch: BatchRunner(batch, store, sender, slots, plan, clock), clock, 86400.0)
    working = asyncio.ensure_future(desk.run())
    try:
        async with asyncio.timeout(30):
            while not until(store):
                await asyncio.sleep(0.02)
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await sender.close()
        store.close()


def one(store: BatchStore) -> StoredBatch:
    found = store.find_batch("t", "batch_1")
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "RETRY_S", 0.01)
    monkeypatch.setattr(desk_module, "LOOK_S", 0.02)


async def test_a_batch_that_can_never_be_validated_fails(tmp_path: Path) -> None:
    """A bug of ours is tried a few times and then is the batch's end, not a traceback every five seconds for a day."""
    await look_after(tmp_path, BROKEN, b"{}\n", lambda store: one(store).status is BatchStatus.FAILED)
    store = BatchStore(tmp_path)
    assert [(problem.code, str(VALIDATIONS) in problem.message) for problem in one(store).errors] == [
        ("internal_bug", True)
    ]
    store.close()


async def test_a_line_of_brackets_fails_its_batch(tmp_path: Path) -> None:
    """It is no valid input, and said so at once, with its line."""
    deep = b'{"custom_id":"1","x":' + b"[" * 3000 + b"]" * 3000 + b"}\n"
    await look_after(tmp_path, PLAN, deep, lambda store: one(store).status is BatchStatus.FAILED)
    store = BatchStore(tmp_path)
    assert [(problem.code, problem.line) for problem in one(store).errors] == [("invalid_json_line", 1)]
    store.close()


async def test_a_disk_that_cannot_be_read_ends_no_batch(tmp_path: Path) -> None:
    """It is tried again for as long as its window is open, and goes on once it can."""
    looks = 0

    def until(store: BatchStore) -> bool:
        nonlocal looks
        looks += 1
        if looks == 30 and one(store).status is BatchStatus.VALIDATING:
            store.path_of("file-1").write_bytes(b"")
        return one(store).status is BatchStatus.FAILED

    await look_after(tmp_path, PLAN, None, until)
    store = BatchStore(tmp_path)
    assert [problem.code for problem in one(store).errors] == ["empty_file"]
    store.close()
