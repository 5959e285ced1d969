"""Follows TensorRT-LLM: asks it again and again for the events since the last answer.

The engine hands each event out once: who else asks takes them away, which is seen as missing numbers.
"""

import asyncio
from collections.abc import Callable

from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.questions import ask
from headrace.gateway.kv_events.core.book import CacheBook
from headrace.gateway.kv_events.core.changes import MalformedError
from headrace.gateway.kv_events.core.polled import PolledReader

PATH = "/kv_cache_events"
ANSWER_BYTES = 16 * 1024 * 1024
ANSWER_S = 10.0
"""It waits up to 2 s for an event before it answers that there are none. Source: serve/openai_server.py."""
PAUSE_S = 0.5
"""Between two questions. Chosen: its buffer of 1,024 events outlasts that at some hundred requests a second."""
SILENT_S = 60.0
"""Where it has no such path (404), it is asked again after so long. Chosen, as for metrics."""


class Poller:
    """One engine. Concurrency: event loop only."""

    def __init__(self, endpoint: Endpoint, book: CacheBook, on_change: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._book = book
        self._on_change = on_change
        self._reader = PolledReader()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            pause_s = PAUSE_S
            if self._endpoint.is_usable:
                reply = await ask(self._endpoint, PATH, timeout_s=ANSWER_S, body_bytes=ANSWER_BYTES, method=b"POST")
                if reply.status == 200:
                    self._take(reply.body)
                elif reply.status in (404, 405):
                    pause_s = SILENT_S
            await asyncio.sleep(pause_s)

    def _take(self, body: bytes) -> None:
        try:
            events = self._reader.read(body)
        except MalformedError:
            self._book.malformed += 1
            return
        for event in events:
            self._book.unknown += not event.is_known
            if not self._book.believes(event.rank, event.number):
                self._book.malformed += 1
                continue
            self._book.add(event.rank, event.number, event.changes)
        if events:
            self._on_change()
