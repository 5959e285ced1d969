"""Misses counted by family, cause and place over the last hour; bounded."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.cache_misses.core.judge import Miss
from headrace.domain.miss_status import ADVICE, MissCause, MissRow

SLICE_S = 300.0
SLICES = 12
MOST_ROWS = 256
"""Of one worker; the one that was idle longest is forgotten first. About 1 kB each."""
LEAST_REQUESTS = 3
"""What happened less often in an hour is not shown: a client that changed its prompt once is no finding. Chosen."""


@dataclass(frozen=True, slots=True)
class RowKey:
    model: str
    tenant: str
    family: int
    cause: MissCause
    place: str


@dataclass(slots=True, eq=False)
class Row:
    latest: Miss
    endpoint: str
    requests: list[int] = field(default_factory=lambda: [0] * SLICES)
    tokens: list[float] = field(default_factory=lambda: [0.0] * SLICES)
    """Scaled to what was not looked at."""
    raw_tokens: list[int] = field(default_factory=lambda: [0] * SLICES)


class MissRows:
    """The last hour, in slices of five minutes."""

    def __init__(self, now_mono_s: float) -> None:
        self._rows: OrderedDict[RowKey, Row] = OrderedDict()
        self._began_mono_s = now_mono_s
        self._slice = 0
        self.by_cause: dict[MissCause, tuple[int, int]] = {}
        """Requests and tokens since the start, for metrics."""

    def add(self, key: RowKey, miss: Miss, endpoint: str, *, scale: float, now_mono_s: float) -> None:
        """Count one miss; `scale`: how many it stands for."""
        self._turn(now_mono_s)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(miss, endpoint)
            if len(self._rows) > MOST_ROWS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(key)
        row.latest, row.endpoint = miss, endpoint
        at = self._slice % SLICES
        row.requests[at] += 1
        row.tokens[at] += miss.tokens_lost * scale
        row.raw_tokens[at] += miss.tokens_lost
        requests, tokens = self.by_cause.get(miss.cause, (0, 0))
        self.by_cause[miss.cause] = (requests + 1, tokens + miss.tokens_lost)

    def shown(self, now_mono_s: float) -> Iterator[MissRow]:
        """Rows that happened often enough, those that lose most first."""
        self._turn(now_mono_s)
        window_s = max(SLICE_S, min(SLICE_S * SLICES, now_mono_s - self._began_mono_s))
        rows = sorted(self._rows.items(), key=lambda item: -sum(item[1].tokens))
        for key, row in rows:
            if sum(row.requests) < LEAST_REQUESTS:
                continue
            difference = row.latest.difference
            yield MissRow(
                model=key.model,
                tenant=key.tenant,
                alike=f"{key.family:016x}"[:8],
                cause=key.cause,
                place=key.place,
                message=None if difference is None else difference.place.message,
                field="" if difference is None else difference.place.field,
                byte_offset=None if difference is None else difference.byte_offset,
                grain_bytes=None if difference is None else difference.grain_bytes,
                token_offset=row.latest.token_offset,
                endpoint=row.endpoint,
                requests=sum(row.requests),
                tokens_lost=sum(row.raw_tokens),
                tokens_lost_per_hour=round(sum(row.tokens) * 3600 / window_s, 1),
                advice=ADVICE[key.cause],
            )

    def _turn(self, now_mono_s: float) -> None:
        """Empty the slices that time has left behind."""
        current = int((now_mono_s - self._began_mono_s) // SLICE_S)
        for passed in range(self._slice + 1, min(current, self._slice + SLICES) + 1):
            for row in self._rows.values():
                row.requests[passed % SLICES] = row.raw_tokens[passed % SLICES] = 0
                row.tokens[passed % SLICES] = 0.0
        self._slice = max(self._slice, current)
