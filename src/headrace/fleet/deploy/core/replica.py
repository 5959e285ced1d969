"""The life of one replica that headrace runs: events in, commands out; knows no clock, process or socket.

The shell is `replica_runner.py`. Times arrive as `now_mono_s`, chance as `jitter_ratio`.

    phase         what may happen                     then
    fetching      ModelArrived / FetchFailed          loading / backing-off
    loading       ProbeAnswered(ready)                warming
    warming       WarmupAnswered                      ready
    ready         ProcessEnded                        backing-off, or crash-loop after too many
                  ProbeAnswered(dead) again and again the same, once its processes are ended
    backing-off,  WokeUp at the retry time            fetching
    crash-loop
    any           StopRequested                       draining, then stopped
    any running   RestartRequested                    draining, then fetching
"""

from collections import deque
from dataclasses import dataclass, field

from headrace.domain.endpoint import ReplicaPhase
from headrace.engines.contract import ProbeVerdict

PROBE_PAUSE_S = 0.2
"""Between two probes while an engine loads: small beside the fastest load seen (about 1 s for a 135M model)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRules:
    """Bounds of one replica's life.

    Source of the back-off: our choice; 0.5 s lets one killed engine return at once, 60 s keeps a broken one from
    burning a core, and five deaths in ten minutes were never an accident.
    """

    load_timeout_s: float
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    crash_loop_deaths: int = 5
    crash_loop_window_s: float = 600.0
    crash_loop_retry_s: float = 60.0
    watch_pause_s: float = 5.0
    """Between two probes of a ready engine. The gateway probes too, and sooner: this one is about ending it."""
    dead_probes: int = 3
    """So many times in a row dead, and its processes are ended: some engines outlive their core and never recover
    (NVIDIA/TensorRT-LLM#18663). Busy is never dead."""
    steady_s: float = 60.0
    """Ready for so long: the earlier deaths no longer lengthen the pause."""


@dataclass(frozen=True, slots=True)
class ModelArrived:
    """The model's files are complete and checked."""


@dataclass(frozen=True, slots=True)
class FetchFailed:
    message: str


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """The engine's process runs, or an earlier one was adopted."""

    is_adopted: bool = False


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The engine cannot be started on this machine."""

    message: str


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    reason: str
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    verdict: ProbeVerdict


@dataclass(frozen=True, slots=True)
class WarmupAnswered:
    """The engine has answered a real request."""


@dataclass(frozen=True, slots=True)
class WarmupFailed:
    message: str


@dataclass(frozen=True, slots=True)
class IdleReached:
    """The gateway has no request in flight on this replica any more, or the bound is over."""


@dataclass(frozen=True, slots=True)
class WokeUp:
    """A time asked for by WakeAt has come."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    is_hurried: bool = False


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """An operator wants a fresh process."""


Event = (
    ModelArrived
    | FetchFailed
    | ProcessStarted
    | StartFailed
    | ProcessEnded
    | ProbeAnswered
    | WarmupAnswered
    | WarmupFailed
    | IdleReached
    | WokeUp
    | StopRequested
    | RestartRequested
)


@dataclass(frozen=True, slots=True)
class FetchModel:
    """Make the model's files present."""


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Adopt the engine that an earlier supervisor left, or start one."""


@dataclass(frozen=True, slots=True)
class ProbeEngine:
    after_s: float


@dataclass(frozen=True, slots=True)
class WarmEngine:
    """Send one tiny real request."""

    after_s: float


@dataclass(frozen=True, slots=True)
class AwaitIdle:
    """Wait until the gateway has nothing in flight here; answer with IdleReached."""


@dataclass(frozen=True, slots=True)
class EndProcess:
    """Drain the engine and end all of its processes."""

    is_hurried: bool = False


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send WokeUp at this time; replaces an earlier wish."""

    mono_s: float


@dataclass(frozen=True, slots=True)
class AbandonFetch:
    """Nobody waits for the model any more."""


Command = FetchModel | StartProcess | ProbeEngine | WarmEngine | AwaitIdle | EndProcess | WakeAt | AbandonFetch


@dataclass(slots=True)
class ReplicaLife:
    """One replica: where it stands, and what is to be done next."""

    rules: LifeRules
    now_mono_s: float
    phase: ReplicaPhase = ReplicaPhase.STOPPED
    reason: str = "not started"
    since_mono_s: float = 0.0
    spans: list[tuple[ReplicaPhase, float]] = field(default_factory=list[tuple[ReplicaPhase, float]])
    """Finished phases of the present life, with their durations in seconds."""
    restarts: int = 0
    last_lines: tuple[str, ...] = ()
    failure: str = ""
    """Why the last try ended; kept over the next ones until one is ready."""
    verdict: str = ""
    """Why this is a crash loop; kept until the replica has been ready for `steady_s`."""
    _deaths: deque[float] = field(default_factory=deque[float])
    _streak: int = 0
    _retry_mono_s: float = 0.0
    _load_deadline_mono_s: float = 0.0
    _kill_reason: str = ""
    _dead_in_a_row: int = 0
    _is_restarting: bool = False
    _is_stopping: bool = False

    def begin(self) -> list[Command]:
        """Start the first life, or the next."""
        self.spans = []
        self._is_restarting = False
        self._enter(ReplicaPhase.FETCHING, "fetching the model")
        return [FetchModel()]

    def feed(self, event: Event, now_mono_s: float, jitter_ratio: float = 0.0) -> list[Command]:
        """Take one event; `jitter_ratio` in [-1, 1] spreads restarts by up to a fifth of the pause."""
        self.now_mono_s = now_mono_s
        match event:
            case StopRequested(is_hurried):
                return self._stop(is_hurried)
            case RestartRequested():
                return self._restart()
            case ProcessEnded(reason, lines):
                return self._end(reason, lines, jitter_ratio)
            case StartFailed(message):
                return self._end(message, (), jitter_ratio)
            case _:
                pass
        match self.phase:
            case ReplicaPhase.FETCHING:
                return self._state_fetching(event, jitter_ratio)
            case ReplicaPhase.LOADING:
                return self._state_loading(event)
            case ReplicaPhase.WARMING:
                return self._state_warming(event)
            case ReplicaPhase.READY:
                return self._state_ready(event)
            case ReplicaPhase.DRAINING:
                return [EndProcess()] if isinstance(event, IdleReached) else []
            case ReplicaPhase.BACKING_OFF | ReplicaPhase.CRASH_LOOP:
                is_due = isinstance(event, WokeUp) and now_mono_s >= self._retry_mono_s
                return self.begin() if is_due else []
            case _:
                return []

    def note_steady(self, now_mono_s: float) -> None:
        """Forgive earlier deaths once the replica has been ready for `steady_s`."""
        if self.phase is ReplicaPhase.READY and now_mono_s - self.since_mono_s >= self.rules.steady_s:
            self._streak, self.verdict, self.last_lines = 0, "", ()

    def _state_fetching(self, event: Event, jitter_ratio: float) -> list[Command]:
        match event:
            case ModelArrived():
                self._load_deadline_mono_s = self.now_mono_s + self.rules.load_timeout_s
                self._enter(ReplicaPhase.LOADING, "starting the engine")
                return [StartProcess(), WakeAt(self._load_deadline_mono_s)]
            case FetchFailed(message):
                return self._back_off(message, jitter_ratio)
            case _:
                return []

    def _state_loading(self, event: Event) -> list[Command]:
        match event:
            case ProcessStarted(is_adopted):
                self.reason = "adopted from an earlier supervisor" if is_adopted else "loading the model"
                return [ProbeEngine(0.0)]
            case ProbeAnswered(ProbeVerdict.READY):
                self._enter(ReplicaPhase.WARMING, "waiting for the first answer")
                return [WarmEngine(0.0)]
            case ProbeAnswered():
                return [ProbeEngine(PROBE_PAUSE_S)]
            case WokeUp():
                return self._give_up_if_late()
            case _:
                return []

    def _state_warming(self, event: Event) -> list[Command]:
        match event:
            case WarmupAnswered():
                self.failure = ""
                self._enter(ReplicaPhase.READY, "ready")
                self._dead_in_a_row = 0
                return [ProbeEngine(self.rules.watch_pause_s)]
            case WarmupFailed(message):
                self.reason = message
                return [WarmEngine(PROBE_PAUSE_S)]
            case WokeUp():
                return self._give_up_if_late()
            case _:
                return []

    def _state_ready(self, event: Event) -> list[Command]:
        """Watch: a process that lives although its engine is dead would be kept for ever."""
        if not isinstance(event, ProbeAnswered) or self._kill_reason:
            return []
        self._dead_in_a_row = self._dead_in_a_row + 1 if event.verdict is ProbeVerdict.DEAD else 0
        if self._dead_in_a_row < self.rules.dead_probes:
            return [ProbeEngine(self.rules.watch_pause_s)]
        self._kill_reason = f"its process lived, but the engine was dead for {self._dead_in_a_row} probes in a row"
        self.reason = self._kill_reason
        return [EndProcess(is_hurried=True)]

    def _give_up_if_late(self) -> list[Command]:
        if self.now_mono_s < self._load_deadline_mono_s or self._kill_reason:
            return []
        self._kill_reason = f"not ready within load_timeout_s ({self.rules.load_timeout_s:g} s): {self.reason}"
        self.reason = self._kill_reason
        return [EndProcess(is_hurried=True)]

    def _end(self, reason: str, lines: tuple[str, ...], jitter_ratio: float) -> list[Command]:
        """The process is gone: stopped as asked, restarted as asked, or dead."""
        reason, self._kill_reason = self._kill_reason or reason, ""
        if self._is_stopping:
            self._enter(ReplicaPhase.STOPPED, "stopped")
            return []
        if self._is_restarting:
            self.restarts += 1
            return self.begin()
        self.note_steady(self.now_mono_s)
        self.last_lines = lines
        self._deaths.append(self.now_mono_s)
        self.restarts += 1
        return self._back_off(reason, jitter_ratio)

    def _back_off(self, reason: str, jitter_ratio: float) -> list[Command]:
        rules, self.failure = self.rules, reason
        while self._deaths and self._deaths[0] < self.now_mono_s - rules.crash_loop_window_s:
            self._deaths.popleft()
        if len(self._deaths) >= rules.crash_loop_deaths:
            pause_s = rules.crash_loop_retry_s
            window_s = self.now_mono_s - self._deaths[0]
            self.verdict = f"crash loop: {len(self._deaths)} deaths in {window_s:.0f} s; {reason}"
            phase, text = ReplicaPhase.CRASH_LOOP, self.verdict
        else:
            pause_s = min(rules.backoff_max_s, rules.backoff_first_s * 2.0**self._streak)
            phase, text = ReplicaPhase.BACKING_OFF, reason
        self._streak += 1
        pause_s *= 1 + 0.2 * jitter_ratio
        self._retry_mono_s = self.now_mono_s + pause_s
        self._enter(phase, f"{text}; next try in {pause_s:.1f} s")
        return [WakeAt(self._retry_mono_s)]

    def _stop(self, is_hurried: bool) -> list[Command]:
        was_stopping, self._is_stopping = self._is_stopping, True
        match self.phase:
            case ReplicaPhase.STOPPED:
                return []
            case ReplicaPhase.FETCHING | ReplicaPhase.BACKING_OFF | ReplicaPhase.CRASH_LOOP:
                self._enter(ReplicaPhase.STOPPED, "stopped")
                return [AbandonFetch()]
            case ReplicaPhase.DRAINING:
                return [EndProcess(is_hurried=True)] if is_hurried else []
            case ReplicaPhase.READY if not is_hurried and not was_stopping:
                self._enter(ReplicaPhase.DRAINING, "finishing requests in flight")
                return [AwaitIdle()]
            case _:
                self._enter(ReplicaPhase.DRAINING, "stopping")
                return [EndProcess(is_hurried=is_hurried)]

    def _restart(self) -> list[Command]:
        match self.phase:
            case ReplicaPhase.READY:
                self._is_restarting = True
                self._enter(ReplicaPhase.DRAINING, "restart asked for: finishing requests in flight")
                return [AwaitIdle()]
            case ReplicaPhase.BACKING_OFF | ReplicaPhase.CRASH_LOOP:
                self._deaths.clear()
                self._streak, self.verdict = 0, ""
                return self.begin()
            case _:
                return []

    def _enter(self, phase: ReplicaPhase, reason: str) -> None:
        if self.phase is not ReplicaPhase.STOPPED:
            self.spans.append((self.phase, self.now_mono_s - self.since_mono_s))
        self.phase, self.reason, self.since_mono_s = phase, reason, self.now_mono_s
