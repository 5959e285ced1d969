"""Room: how much work an endpoint may be given at once, and whether some of it is left for one more request.

A limit comes from what is declared, corrected by what the engine says of itself; where neither says anything there is
none, and the engine is given all that comes.

1. Declared: `queue.sequences`, else `batching.max_sequences`; of several workers each has its share.
2. Learned: an engine that has requests waiting runs as many as it can; so many, and a few more, are its limit, until
   nothing waits there. With KV memory to spare, only requests that wait in several readings say so: one may only wait
   for a long prompt ahead of it, which is over before the next reading.
3. Others' requests at the same engine (other workers, other gateways) take their part away, while that is known: at
   most OTHERS_RATIO of it, so that of two gateways none shuts the other out, and figures that are wrong do not either.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil

from headrace.gateway.endpoints.load import READINGS, EndpointLoad, MeasuredLoad, Place

SLACK_RATIO = 1 / 16
SLACK_S = 0.25
"""Requests beyond what a full engine runs: a few, and as many as it ends in so long. Were there fewer, an engine whose
limit is the prompts of a step would compute them one by one, and what it runs would never show how much it can.
Chosen: what a newcomer waits behind them."""
SCARCE_RATIO = 0.9
"""KV memory used to this is what requests wait for. Chosen."""
GROWTH_RATIO = 0.5
"""How much a learned limit grows with each reading that shows nothing waiting though all of it is used: fast,
since a limit learned too low holds back all, and one too high only what comes until the next reading. Chosen."""
OTHERS_RATIO = 0.5
"""How much of an engine others' requests may take away. Chosen: a fair half for each of two gateways."""
FULL_RATIO = 0.75
CALM_RATIO = 0.25
"""An engine whose places are taken to FULL_RATIO is held up by generating, and prompts come one by one as places become
free: CALM_RATIO of the bound on prompts is enough then, and leaves the newcomer room in the next step. Measured in
virtual time: tests/unit/rehearsal/test_virtual_pool.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRoom:
    """What is declared of one endpoint of a pool. None: nothing."""

    sequences: int | None = None
    prefill_tokens: int | None = None
    held_tokens: int | None = None
    workers: int = 1
    """Gateway processes that give it requests; each takes its share."""

    @property
    def share(self) -> int | None:
        """Requests that are ours whatever the others do."""
        return None if self.sequences is None else max(1, ceil(self.sequences / self.workers))


class Room:
    """Sets the limits of one endpoint's load from what is declared and measured."""

    def __init__(self, load: EndpointLoad, declared: DeclaredRoom) -> None:
        self._load = load
        self._learned: int | None = None
        self._declared = declared
        self.last: MeasuredLoad | None = None
        """The reading that counted last."""
        self._full: deque[int] = deque(maxlen=READINGS)
        """What it ran in the last readings, while in each of them requests waited."""
        self.adopt(declared)

    def adopt(self, declared: DeclaredRoom) -> None:
        """Follow a plan; what was learned stays."""
        self._declared = declared
        self._set(declared.share)

    def measured(self, reading: MeasuredLoad) -> None:
        """Correct the limit by a fresh reading."""
        before, self.last = self.last, reading
        declared = self._declared
        self._learn(reading, before)
        known = [each for each in (declared.sequences, self._learned) if each is not None]
        if not known:
            self._set(None)
            return
        whole = min(known)
        if declared.workers == 1:
            self._set(max(1, ceil(whole * OTHERS_RATIO), whole - self._load.foreign))
            return
        share = max(1, ceil(whole / declared.workers))
        free = whole - reading.in_flight - reading.foreign  # what is lent must be there: the latest counts
        self._set(max(share, reading.in_flight + max(0, free) // declared.workers))

    def went_stale(self) -> None:
        """The engine says nothing any more: back to what is declared, and our own counts."""
        self._learned = self.last = None
        self._full.clear()
        self._load.went_stale()
        self._set(self._declared.share)

    def _learn(self, reading: MeasuredLoad, before: MeasuredLoad | None) -> None:
        running, waiting = reading.running, reading.waiting
        if running is None or waiting is None:
            return
        if waiting > 0 and running >= 1:
            self._full.append(int(running))
            kv_used, most = reading.kv_utilization_ratio, int(running)
            if kv_used is not None and kv_used < SCARCE_RATIO:
                if len(self._full) < READINGS:
                    return
                most = max(self._full)
            learned = most + _slack(running, reading, before)
            if self._learned is None or learned >= self._learned or not self._only_ours_run(reading, running):
                self._learned = learned
            return
        self._full.clear()
        if self._learned is not None and max(reading.in_flight, running) >= self._learned:
            self._learned += max(1, ceil(self._learned * GROWTH_RATIO))

    def _only_ours_run(self, reading: MeasuredLoad, running: float) -> bool:
        """Whether others' requests are said to wait where none of them runs, nor any of ours waits: the engine runs as
        few as it is given, and a limit learned from that would sink from reading to reading.
        """
        return self._load.foreign > 0 and abs(running - reading.in_flight) <= max(1, round(running * SLACK_RATIO))

    def _set(self, sequences: int | None) -> None:
        load, declared = self._load, self._declared
        load.sequences_limit = sequences
        load.prefill_limit_tokens = declared.prefill_tokens
        load.held_limit_tokens = declared.held_tokens
        load.has_limit = sequences is not None or declared.held_tokens is not None

    def __repr__(self) -> str:
        return f"Room({self._declared}, learned={self._learned}, now={self._load.sequences_limit})"


def _slack(running: float, reading: MeasuredLoad, before: MeasuredLoad | None) -> int:
    """Requests that may wait in an engine that runs so many."""
    least = max(1, round(running * SLACK_RATIO))
    if before is None or reading.at_mono_s <= before.at_mono_s:
        return least
    return max(least, round((reading.ended - before.ended) / (reading.at_mono_s - before.at_mono_s) * SLACK_S))


def headroom_of(limit: int, ratio: float) -> int:
    """Places of `limit` that are kept for tenants who have less than their share; none on a small engine."""
    return int(limit * ratio + 0.5)


def has_room(place: Place, input_tokens: int, is_light: bool, is_contended: bool, headroom_ratio: float) -> bool:
    """Tell whether `place` may be given one more request of `input_tokens`.

    `is_light`: its tenant has less than its share, so that the headroom is for it. `is_contended`: others use the pool
    too; alone, nobody needs headroom, or short prompts ahead of it. An idle place always has room.
    """
    in_flight, load = place.in_flight, place.load
    if not in_flight:
        return True
    limit = load.sequences_limit
    if limit is not None and in_flight * 2 >= limit:  # the headroom is at most half
        if in_flight >= limit:
            return False
        if is_contended and not is_light and in_flight >= limit - headroom_of(limit, headroom_ratio):
            return False
    held_limit = load.held_limit_tokens
    if held_limit is not None and load.held_tokens + load.prefill_tokens + input_tokens > held_limit:
        return False
    prefill_limit: float | None = load.prefill_limit_tokens
    if prefill_limit is None or not is_contended or not load.prefilling:
        return True
    if is_light:
        prefill_limit *= 2
    elif limit is not None and in_flight >= limit * FULL_RATIO:
        prefill_limit *= CALM_RATIO
    return (load.prefill_tokens + input_tokens) * load.miss_ratio <= prefill_limit
