"""The supervisor's connection to a worker, at its end."""

import asyncio
from pathlib import Path
from typing import Any, cast

from headrace.gateway.control_link import ControlLink
from headrace.gateway.worker import Worker


async def test_a_worker_that_ends_leaves_no_traceback(tmp_path: Path) -> None:
    """An upgrade or `down` cancels the connection that the supervisor still holds; that is no fault to be logged."""
    loop, complaints = asyncio.get_running_loop(), list[dict[str, Any]]()
    begun, ended = asyncio.Event(), asyncio.Event()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    link = ControlLink(cast("Worker", None), begun.set, ended.set)
    before = asyncio.all_tasks()
    server = await asyncio.start_unix_server(link.serve, path=tmp_path / "worker.sock")
    reader, writer = await asyncio.open_unix_connection(tmp_path / "worker.sock")
    async with asyncio.timeout(30):
        await begun.wait()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await ended.wait()
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    assert complaints == []
