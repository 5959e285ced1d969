"""Request uids that sort by time: rows land at the end of the ledger's primary key, not all over it."""

import secrets

from headrace.domain.ids import RequestUid


class UidSource:
    """Makes the uids of one process: 12 hex digits of milliseconds, 12 of this source, 8 of a counter.

    A random uid costs the projection 6 microseconds more per row (measured, SQLite, 300,000 rows).
    Concurrency: one thread.
    """

    __slots__ = ("_count", "_ms", "_source", "_start")

    def __init__(self) -> None:
        self._source = secrets.token_hex(6)
        self._count = 0
        self._ms = -1
        self._start = ""
        """The first 24 digits, which are the same for all uids of one millisecond."""

    def make_uid(self, received_at: float) -> RequestUid:
        """A uid for a request received at `received_at` (UTC epoch seconds)."""
        ms = int(received_at * 1000)
        if ms != self._ms:
            self._ms, self._start = ms, f"{ms:012x}{self._source}"
        self._count = count = (self._count + 1) & 0xFFFFFFFF
        return RequestUid(f"{self._start}{count:08x}")
