"""The life of a replica as a playbook: events in, commands out."""

import pytest

from headrace.domain.endpoint import ReplicaPhase
from headrace.engines.contract import ProbeVerdict
from headrace.fleet.deploy.core.replica import (
    PROBE_PAUSE_S,
    AbandonFetch,
    AwaitIdle,
    Command,
    EndProcess,
    Event,
    FetchFailed,
    FetchModel,
    IdleReached,
    LifeRules,
    ModelArrived,
    ProbeAnswered,
    ProbeEngine,
    ProcessEnded,
    ProcessStarted,
    ReplicaLife,
    RestartRequested,
    StartFailed,
    StartProcess,
    StopRequested,
    WakeAt,
    WarmEngine,
    WarmupAnswered,
    WarmupFailed,
    WokeUp,
)

RULES = LifeRules(load_timeout_s=100.0)


class Playbook:
    """Feeds a life and compares what it asks for."""

    def __init__(self) -> None:
        self.now_mono_s = 1000.0
        self.life = ReplicaLife(RULES, self.now_mono_s)
        self.last: list[Command] = []

    def begin(self) -> "Playbook":
        self.last = self.life.begin()
        return self

    def feed(self, event: Event, *, after_s: float = 1.0, jitter: float = 0.0) -> "Playbook":
        self.now_mono_s += after_s
        self.last = self.life.feed(event, self.now_mono_s, jitter)
        return self

    def expect(self, *commands: Command, phase: ReplicaPhase) -> "Playbook":
        assert (tuple(self.last), self.life.phase) == (commands, phase)
        return self

    def ready(self) -> "Playbook":
        """Go the usual way."""
        self.begin().feed(ModelArrived()).feed(ProcessStarted()).feed(ProbeAnswered(ProbeVerdict.READY))
        return self.feed(WarmupAnswered())

    def die(self, lines: tuple[str, ...] = ()) -> "Playbook":
        return self.feed(ProcessEnded("killed by SIGKILL", lines))


def test_a_replica_is_ready_only_when_it_has_answered_a_request() -> None:
    """The way to ready: fetch, load, answer the probe, answer a real request; each phase is timed."""
    playbook = Playbook().begin()
    playbook.expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    playbook.feed(ModelArrived(), after_s=5)
    playbook.expect(StartProcess(), WakeAt(1105.0), phase=ReplicaPhase.LOADING)
    playbook.feed(ProcessStarted()).expect(ProbeEngine(0.0), phase=ReplicaPhase.LOADING)
    playbook.feed(ProbeAnswered(ProbeVerdict.LOADING)).expect(ProbeEngine(PROBE_PAUSE_S), phase=ReplicaPhase.LOADING)
    playbook.feed(ProbeAnswered(ProbeVerdict.READY)).expect(WarmEngine(0.0), phase=ReplicaPhase.WARMING)
    playbook.feed(WarmupFailed("503")).expect(WarmEngine(PROBE_PAUSE_S), phase=ReplicaPhase.WARMING)
    playbook.feed(WarmupAnswered()).expect(ProbeEngine(5.0), phase=ReplicaPhase.READY)
    assert playbook.life.spans == [
        (ReplicaPhase.FETCHING, 5.0),
        (ReplicaPhase.LOADING, 3.0),
        (ReplicaPhase.WARMING, 2.0),
    ]


def test_a_single_death_is_mended_at_once() -> None:
    """An engine that is killed returns after half a second, without anybody's help."""
    playbook = Playbook().ready().die()
    playbook.expect(WakeAt(playbook.now_mono_s + 0.5), phase=ReplicaPhase.BACKING_OFF)
    playbook.feed(WokeUp(), after_s=0.5).expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    assert playbook.life.restarts == 1


def test_the_pause_doubles_with_each_death_and_has_a_bound() -> None:
    """A replica that keeps dying is started ever more slowly."""
    playbook = Playbook()
    pauses: list[float] = []
    for _ in range(4):
        playbook.ready().die()
        wake = playbook.last[0]
        assert isinstance(wake, WakeAt)
        pauses.append(wake.mono_s - playbook.now_mono_s)
        playbook.feed(WokeUp(), after_s=60)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert min(RULES.backoff_max_s, 0.5 * 2**20) == 30.0


@pytest.mark.parametrize(("jitter", "pause_s"), [(-1.0, 0.4), (0.0, 0.5), (1.0, 0.6)])
def test_restarts_are_spread(jitter: float, pause_s: float) -> None:
    """Replicas that die together do not all come back in the same instant."""
    playbook = Playbook().ready().feed(ProcessEnded("gone"), jitter=jitter)
    wake = playbook.last[0]
    assert isinstance(wake, WakeAt)
    assert wake.mono_s - playbook.now_mono_s == pytest.approx(pause_s)


def test_five_deaths_in_ten_minutes_are_a_crash_loop() -> None:
    """The verdict shows the engine's last words and goes on trying slowly."""
    playbook = Playbook()
    for death in range(1, 6):
        playbook.ready().die(("CUDA out of memory",))
        phase = ReplicaPhase.CRASH_LOOP if death == 5 else ReplicaPhase.BACKING_OFF
        assert playbook.life.phase is phase
        if death < 5:
            playbook.feed(WokeUp(), after_s=30)
    playbook.expect(WakeAt(playbook.now_mono_s + RULES.crash_loop_retry_s), phase=ReplicaPhase.CRASH_LOOP)
    assert playbook.life.last_lines == ("CUDA out of memory",)
    assert "5 deaths" in playbook.life.reason
    playbook.feed(WokeUp(), after_s=RULES.crash_loop_retry_s).expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    assert "crash loop" in playbook.life.verdict


def test_rare_deaths_are_no_crash_loop() -> None:
    """Five deaths spread over hours are five accidents."""
    playbook = Playbook()
    for _ in range(6):
        playbook.ready().feed(ProcessEnded("killed"), after_s=RULES.crash_loop_window_s)
        assert playbook.life.phase is ReplicaPhase.BACKING_OFF
        playbook.feed(WokeUp(), after_s=30)


def test_a_steady_replica_is_forgiven() -> None:
    """After a minute of being ready, the next death is treated as the first."""
    playbook = Playbook()
    for _ in range(3):
        playbook.ready().die().feed(WokeUp(), after_s=30)
    playbook.ready().feed(ProcessEnded("killed"), after_s=RULES.steady_s)
    playbook.expect(WakeAt(playbook.now_mono_s + 0.5), phase=ReplicaPhase.BACKING_OFF)


def test_a_replica_that_never_gets_ready_is_ended_at_its_bound() -> None:
    """A load that hangs ends at load_timeout_s, and the reason says so."""
    playbook = Playbook().begin().feed(ModelArrived()).feed(ProcessStarted())
    playbook.feed(WokeUp(), after_s=98.9).expect(phase=ReplicaPhase.LOADING)
    playbook.feed(WokeUp(), after_s=0.1).expect(EndProcess(is_hurried=True), phase=ReplicaPhase.LOADING)
    playbook.feed(WokeUp()).expect(phase=ReplicaPhase.LOADING)
    playbook.feed(ProcessEnded("killed by SIGTERM"))
    assert playbook.life.phase is ReplicaPhase.BACKING_OFF
    assert "load_timeout_s (100 s)" in playbook.life.reason


def test_a_failed_fetch_is_tried_again_and_is_no_death() -> None:
    """A model that cannot be fetched is tried again with growing pauses, and never called a crash loop."""
    playbook = Playbook().begin()
    for _ in range(8):
        playbook.feed(FetchFailed("checksum differs"))
        assert playbook.life.phase is ReplicaPhase.BACKING_OFF
        assert "checksum differs" in playbook.life.reason
        playbook.feed(WokeUp(), after_s=100).expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    assert playbook.life.restarts == 0


def test_an_engine_that_is_not_installed_says_so() -> None:
    """What cannot be started is named as the reason."""
    playbook = Playbook().begin().feed(ModelArrived()).feed(StartFailed("no llama.cpp here"))
    assert playbook.life.phase is ReplicaPhase.BACKING_OFF
    assert "no llama.cpp here" in playbook.life.reason


def test_a_stop_drains_first() -> None:
    """A ready replica finishes what it has in flight before it is ended."""
    playbook = Playbook().ready().feed(StopRequested()).expect(AwaitIdle(), phase=ReplicaPhase.DRAINING)
    playbook.feed(IdleReached()).expect(EndProcess(), phase=ReplicaPhase.DRAINING)
    playbook.feed(ProcessEnded("stopped")).expect(phase=ReplicaPhase.STOPPED)


def test_a_hurried_stop_does_not_wait() -> None:
    """Asked twice, a drain is cut short."""
    playbook = Playbook().ready().feed(StopRequested())
    playbook.feed(StopRequested(is_hurried=True)).expect(EndProcess(is_hurried=True), phase=ReplicaPhase.DRAINING)


@pytest.mark.parametrize("event", [ModelArrived(), FetchFailed("x")], ids=["arrives", "fails"])
def test_a_stop_while_fetching_is_immediate(event: Event) -> None:
    """A download nobody waits for any more is given up, and its late end changes nothing."""
    playbook = Playbook().begin().feed(StopRequested()).expect(AbandonFetch(), phase=ReplicaPhase.STOPPED)
    playbook.feed(event).expect(phase=ReplicaPhase.STOPPED)


def test_a_stop_while_loading_ends_the_process() -> None:
    """An engine that still loads has nothing in flight and is ended at once."""
    playbook = Playbook().begin().feed(ModelArrived()).feed(StopRequested())
    playbook.expect(EndProcess(), phase=ReplicaPhase.DRAINING)
    playbook.feed(ProcessStarted()).expect(phase=ReplicaPhase.DRAINING)
    playbook.feed(ProcessEnded("stopped")).expect(phase=ReplicaPhase.STOPPED)


def test_a_restart_is_not_a_death() -> None:
    """A restart that an operator asked for drains first and is not held against the replica."""
    playbook = Playbook().ready().feed(RestartRequested()).expect(AwaitIdle(), phase=ReplicaPhase.DRAINING)
    playbook.feed(IdleReached()).feed(ProcessEnded("stopped")).expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    assert playbook.life.restarts == 1


def test_an_operator_may_cut_a_pause_short() -> None:
    """A restart asked for in a crash loop starts at once and forgets the verdict."""
    playbook = Playbook()
    for _ in range(5):
        playbook.ready().die()
        if playbook.life.phase is ReplicaPhase.BACKING_OFF:
            playbook.feed(WokeUp(), after_s=30)
    playbook.feed(RestartRequested()).expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    assert playbook.life.verdict == ""


def test_a_stale_probe_changes_nothing() -> None:
    """An answer that arrives after the engine's death does not make it ready."""
    playbook = Playbook().ready().die().feed(ProbeAnswered(ProbeVerdict.READY)).expect(phase=ReplicaPhase.BACKING_OFF)
    playbook.feed(WarmupAnswered()).expect(phase=ReplicaPhase.BACKING_OFF)


def test_an_engine_that_is_dead_while_its_process_lives_is_ended() -> None:
    """Dead three times in a row, it is ended, and comes back like one that died; the reason is kept."""
    playbook = Playbook().ready()
    playbook.feed(ProbeAnswered(ProbeVerdict.DEAD)).expect(ProbeEngine(5.0), phase=ReplicaPhase.READY)
    playbook.feed(ProbeAnswered(ProbeVerdict.DEAD)).expect(ProbeEngine(5.0), phase=ReplicaPhase.READY)
    playbook.feed(ProbeAnswered(ProbeVerdict.DEAD)).expect(EndProcess(is_hurried=True), phase=ReplicaPhase.READY)
    playbook.feed(ProbeAnswered(ProbeVerdict.DEAD)).expect(phase=ReplicaPhase.READY)
    playbook.die().expect(WakeAt(playbook.now_mono_s + 0.5), phase=ReplicaPhase.BACKING_OFF)
    assert "dead for 3 probes in a row" in playbook.life.reason


@pytest.mark.parametrize("verdict", [ProbeVerdict.READY, ProbeVerdict.BUSY, ProbeVerdict.LOADING])
def test_an_engine_that_answers_in_between_is_kept(verdict: ProbeVerdict) -> None:
    """Busy, paused or well: none of them is dead, and the count begins anew."""
    playbook = Playbook().ready()
    for _ in range(5):
        playbook.feed(ProbeAnswered(ProbeVerdict.DEAD)).feed(ProbeAnswered(ProbeVerdict.DEAD))
        playbook.feed(ProbeAnswered(verdict)).expect(ProbeEngine(5.0), phase=ReplicaPhase.READY)


def test_why_a_try_failed_is_kept_until_one_succeeds() -> None:
    """While a model is fetched again, an operator still sees what went wrong; once ready it is history."""
    playbook = Playbook().begin().feed(FetchFailed("checksum mismatch"))
    assert playbook.life.failure == "checksum mismatch"
    playbook.feed(WokeUp(), after_s=1).expect(FetchModel(), phase=ReplicaPhase.FETCHING)
    assert playbook.life.failure == "checksum mismatch"
    playbook.feed(ModelArrived()).feed(StartFailed("no such program"))
    assert playbook.life.failure == "no such program"
    playbook.feed(WokeUp(), after_s=60).feed(ModelArrived()).feed(ProcessStarted())
    playbook.feed(ProbeAnswered(ProbeVerdict.READY)).feed(WarmupAnswered())
    assert (playbook.life.phase, playbook.life.failure) == (ReplicaPhase.READY, "")
