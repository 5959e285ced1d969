"""The supervisor's side of one warden: start it, adopt it from an earlier supervisor, drain it, see it end."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.engines.contract import Launch
from headrace.fleet.deploy.process_identity import own_identity
from headrace.fleet.deploy.process_watch import kill_session, spawn, try_signal, wait_gone, wait_gone_within
from headrace.fleet.deploy.warden_state import EngineEnd, WardenState, find_state

WARDEN_START_S = 20.0
"""Bound for a warden to write its first state: a bare interpreter's start, with room for a busy machine."""
WARDEN_GRACE_S = 5.0
"""Beyond `stop_s`: the warden's own sweep."""


class WardenFailedError(Exception):
    """The warden itself did not start; the message says what is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WardenPlan:
    """What a warden must know beside the engine's command."""

    state_path: Path
    log_path: Path
    log_bytes: int
    log_files: int
    supervisor_file: Path
    policy: Literal["stop", "keep"]
    stop_s: float
    port: int


def launch_digest(launch: Launch) -> str:
    """Tell one command from another: an engine is adopted only under the very command it was started with."""
    files = sorted((str(path), text) for path, text in launch.files.items())
    text = json.dumps([list(launch.argv), sorted(launch.env.items()), *([files] if files else [])])
    return hashlib.sha256(text.encode()).hexdigest()


class EngineProcess:
    """One engine under its warden.

    Concurrency: one owner, on the event loop.
    """

    def __init__(self, state: WardenState, plan: WardenPlan) -> None:
        self.state = state
        self._plan = plan

    def __repr__(self) -> str:
        engine = self.state.engine
        return f"EngineProcess(warden={self.state.warden.pid}, engine={engine.pid if engine else None})"

    @property
    def pid(self) -> int | None:
        return self.state.engine.pid if self.state.engine else None

    async def wait_ended(self) -> EngineEnd:
        """Return how the engine ended, once its warden and all it started are gone."""
        warden = self.state.warden
        await wait_gone(warden)
        kill_session(warden.pid)  # Nothing, unless the warden itself was killed.
        state = find_state(self._plan.state_path)
        if state is None or state.warden != warden or state.end is None:
            return EngineEnd(0.0, None, None, "was lost: its warden was killed", [])
        return state.end

    def drain(self) -> None:
        """Ask the warden to end the engine within its bound."""
        try_signal(self.state.warden, signal.SIGTERM)

    async def kill_after(self, bound_s: float) -> None:
        """Kill the engine, and then its warden, unless they have ended by themselves within `bound_s`."""
        warden = self.state.warden
        if not await wait_gone_within(warden, bound_s):
            kill_session(warden.pid, but=warden.pid)  # The warden lives on to write the last lines down.
            if not await wait_gone_within(warden, WARDEN_GRACE_S):
                kill_session(warden.pid)


async def start_engine(launch: Launch, plan: WardenPlan) -> EngineProcess:
    """Start a warden with its engine.

    Raises: WardenFailedError.
    """
    plan.state_path.unlink(missing_ok=True)
    order = {
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "log_path": str(plan.log_path),
        "log_bytes": plan.log_bytes,
        "log_files": plan.log_files,
        "state_path": str(plan.state_path),
        "supervisor_file": str(plan.supervisor_file),
        "supervisor": own_identity()._asdict(),
        "policy": plan.policy,
        "stop_s": plan.stop_s,
        "port": plan.port,
        "digest": launch_digest(launch),
    }
    argv = [sys.executable, "-m", "headrace.fleet.deploy.warden"]
    warden = spawn(argv, env=os.environ, stdin=json.dumps(order).encode())
    end_mono_s = asyncio.get_running_loop().time() + WARDEN_START_S
    while asyncio.get_running_loop().time() < end_mono_s:
        state = find_state(plan.state_path)
        if state is not None and (warden is None or state.warden.pid == warden.pid):
            return EngineProcess(state, plan)
        if warden is None or not warden.is_alive:
            break
        await asyncio.sleep(0.01)
    if warden is not None:
        kill_session(warden.pid)
        await wait_gone(warden)
    raise WardenFailedError(f"could not be started: its warden wrote no {plan.state_path}")


def find_adoptable(state_path: Path) -> WardenState | None:
    """Return the state of an engine that an earlier supervisor left running."""
    state = find_state(state_path)
    if state is None or state.end is not None or state.engine is None:
        return None
    return state if state.warden.is_alive and state.engine.is_alive else None


def adopt_engine(state: WardenState, plan: WardenPlan) -> EngineProcess:
    """Take over: the warden reads the supervisor file anew, and from now on watches this supervisor."""
    try_signal(state.warden, signal.SIGHUP)
    return EngineProcess(state, plan)


async def end_stray(state: WardenState, bound_s: float) -> None:
    """End an engine of an earlier supervisor that nobody wants any more."""
    try_signal(state.warden, signal.SIGTERM)
    if not await wait_gone_within(state.warden, bound_s + WARDEN_GRACE_S):
        kill_session(state.warden.pid)
