"""What can be made to go wrong, while the engine runs: each fault with a chance, a count and a duration.

Set by `--fault` at start or `POST /sim/faults` later. The draws come from a seed, so that a run can be repeated.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec


class FaultKind(StrEnum):
    """The failures that can be had."""

    REFUSE = "refuse"
    """New connections are refused: nothing listens."""
    ERROR = "error"
    """Requests are answered with `status` (500)."""
    STALL = "stall"
    """A stream stops after `after_tokens` tokens, its connection open, for `stall_s` seconds (0: for ever)."""
    CUT = "cut"
    """A stream is cut after `after_tokens` tokens: `how` is fin, rst or error-event."""
    SLOW = "slow"
    """Every step takes `factor` times as long."""
    MALFORMED = "malformed"
    """Answers and, after `after_tokens` tokens, events are no JSON."""
    DIE = "die"
    """The process ends at once as if killed, after `after_tokens` tokens of a request; 0: at the next request."""
    OOM = "oom"
    """As `die`, with CUDA's words on stderr; set at start, the engine never becomes ready."""
    SLOW_LOAD = "slow-load"
    """Loading takes `load_s` seconds; only at start."""
    METRICS_NAN = "metrics-nan"
    METRICS_STALE = "metrics-stale"
    """The page of metrics stays as it was when the fault was set."""
    METRICS_MISSING = "metrics-missing"
    """The path of metrics answers 404."""
    METRICS_RENAMED = "metrics-renamed"
    """Every metric has another name."""
    KV_LOSS = "kv-loss"
    """KV that a decode engine fetches from here, or to here, is lost."""
    KV_SLOW = "kv-slow"
    """Fetching KV takes `stall_s` seconds longer."""


class Cut(StrEnum):
    FIN = "fin"
    """The connection is closed in order, in the middle of the answer."""
    RST = "rst"
    ERROR_EVENT = "error-event"
    """vLLM's way: an error event, then the end mark."""


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One failure."""

    kind: FaultKind
    probability: float = 1.0
    """Chance that it happens to a request."""
    count: int | None = None
    """How many times it happens at most; None: without bound."""
    duration_s: float | None = None
    """How long it may happen, from when it was set; None: until it is cleared."""
    after_tokens: int = 1
    """Of each choice."""
    how: Cut = Cut.FIN
    status: int = 500
    stall_s: float = 0.0
    factor: float = 4.0
    load_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be 0..1, not {self.probability}")
        if not 400 <= self.status <= 599:
            raise ValueError(f"status must be 400..599, not {self.status}")
        if not 0 < self.factor <= MAX_FACTOR:
            raise ValueError(f"factor must be above 0 and at most {MAX_FACTOR}, not {self.factor}")
        for name, value in (("stall_s", self.stall_s), ("load_s", self.load_s), ("duration_s", self.duration_s or 0)):
            if not 0 <= value <= MAX_S:
                raise ValueError(f"{name} must be 0..{MAX_S:.0f}, not {value}")
        if self.after_tokens < 0 or (self.count is not None and self.count < 0):
            raise ValueError("after_tokens and count must not be negative")


MAX_FACTOR = 10_000.0
MAX_S = 86_400.0
"""A day: a slip of the key does not hang a test for ever."""


def parse_fault(text: str) -> Fault:
    """Read `--fault KIND[:NAME=VALUE[,NAME=VALUE...]]`, such as `cut:after_tokens=5,how=rst,count=1`.

    Raises: ValueError, saying what is wrong.
    """
    kind, _, rest = text.partition(":")
    members: dict[str, Any] = {"kind": kind.strip()}
    for part in rest.split(",") if rest else ():
        name, sign, value = part.partition("=")
        if not sign:
            raise ValueError(f"{part!r} must be NAME=VALUE")
        members[name.strip()] = value.strip()
    try:
        return msgspec.convert(members, Fault, strict=False)
    except msgspec.ValidationError as error:
        kinds = ", ".join(FaultKind)
        raise ValueError(f"{error}; kinds are {kinds}") from error


@dataclass(slots=True)
class _Set:
    fault: Fault
    set_mono_s: float
    happened: int = 0


@dataclass(slots=True)
class FaultBook:
    """The faults that are set. Times are monotonic seconds."""

    seed: int = 0
    _sets: list[_Set] = field(default_factory=list[_Set])
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 # chance of a rehearsal, not of a secret

    def put(self, faults: Sequence[Fault], now_mono_s: float) -> None:
        """Set `faults` instead of those that were set."""
        self._sets = [_Set(fault, now_mono_s) for fault in faults]

    def active(self, kind: FaultKind, now_mono_s: float) -> Fault | None:
        """The fault of this kind that is in force, without counting it."""
        found = self._find(kind, now_mono_s)
        return found.fault if found else None

    def draw(self, kind: FaultKind, now_mono_s: float) -> Fault | None:
        """Let chance decide whether it happens now, and count it."""
        found = self._find(kind, now_mono_s)
        if found is None or self._random.random() >= found.fault.probability:
            return None
        found.happened += 1
        return found.fault

    def _find(self, kind: FaultKind, now_mono_s: float) -> _Set | None:
        for entry in self._sets:
            fault = entry.fault
            if fault.kind is not kind or (fault.count is not None and entry.happened >= fault.count):
                continue
            if fault.duration_s is None or now_mono_s < entry.set_mono_s + fault.duration_s:
                return entry
        return None

    def next_change_s(self, now_mono_s: float) -> float | None:
        """Seconds until the next fault ends by itself."""
        ends = [
            entry.set_mono_s + entry.fault.duration_s - now_mono_s
            for entry in self._sets
            if entry.fault.duration_s is not None
        ]
        return min((left for left in ends if left > 0), default=None)

    def view(self, now_mono_s: float) -> list[dict[str, object]]:
        """Every fault that was set, whether it is still in force, and how often it happened."""
        return [
            {
                **msgspec.to_builtins(entry.fault),
                "happened": entry.happened,
                "is_active": self._is_active(entry, now_mono_s),
            }
            for entry in self._sets
        ]

    @staticmethod
    def _is_active(entry: _Set, now_mono_s: float) -> bool:
        fault = entry.fault
        is_left = fault.count is None or entry.happened < fault.count
        return is_left and (fault.duration_s is None or now_mono_s < entry.set_mono_s + fault.duration_s)
