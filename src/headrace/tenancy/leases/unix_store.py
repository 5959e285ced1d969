"""The book behind a Unix socket: a gateway worker's way to the coordinator in its supervisor."""

import asyncio
from pathlib import Path

from headrace.tenancy.leases.exchange import Exchange, ExchangeReply, StoreLostError
from headrace.tenancy.leases.frames import FrameError, read_frame, to_frame


class UnixStore:
    """Implements `LeaseStore`. Connects when asked first, and anew after a failure."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self, message: Exchange) -> ExchangeReply:
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._reader is None or self._writer is None:
                    self._reader, self._writer = await asyncio.open_unix_connection(str(self._path))
                self._writer.write(to_frame(message))
                await self._writer.drain()
                return await read_frame(self._reader, ExchangeReply)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, FrameError) as error:
            self._drop()
            raise StoreLostError(f"coordinator at {self._path.name}: {error!r}") from error
        except asyncio.CancelledError:
            self._drop()  # A late answer must not be taken for the next one's.
            raise

    async def close(self) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
