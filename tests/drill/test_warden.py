"""The warden under fire: real processes, killed in every order."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from tests.harness.polling import wait_until

from headrace.engines.contract import Launch
from headrace.fleet.deploy.engine_process import EngineProcess, WardenPlan, find_adoptable, start_engine
from headrace.fleet.deploy.ports import choose_port
from headrace.fleet.deploy.process_identity import session_members
from headrace.fleet.deploy.warden_state import find_state

ENGINE = Path(__file__).parent / "standins" / "engine.py"

SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from headrace.engines.contract import Launch
from headrace.fleet.deploy.engine_process import WardenPlan, start_engine
folder, policy, port, engine = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
plan = WardenPlan(state_path=folder / "engine.json", log_path=folder / "engine.log", log_bytes=65536, log_files=2,
                  supervisor_file=folder / "supervisor.json", policy=policy, stop_s=10.0, port=port)
launch = Launch(argv=(sys.executable, engine, "--port", str(port)), env={}, description="")
async def main():
    await start_engine(launch, plan)
    print("started", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def nap(folder: Path) -> str:
    """Seconds for `sleep` that no other test uses, so that its processes can be told apart."""
    return f"600.{zlib.crc32(str(folder).encode())}"


def sleepers(seconds: str) -> list[int]:
    """Living processes `sleep SECONDS`: children of the stand-in engine."""
    wanted = f"sleep\0{seconds}\0".encode()
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and Path(f"/proc/{entry}/cmdline").read_bytes() == wanted:
                found.append(int(entry))
        except OSError:
            continue
    return found


def plan_in(folder: Path, port: int, *, stop_s: float = 10.0) -> WardenPlan:
    return WardenPlan(
        state_path=folder / "engine.json",
        log_path=folder / "engine.log",
        log_bytes=65536,
        log_files=2,
        supervisor_file=folder / "supervisor.json",
        policy="stop",
        stop_s=stop_s,
        port=port,
    )


async def start(folder: Path, *, stop_s: float = 10.0, **environment: str) -> EngineProcess:
    port = choose_port("127.0.0.1", (), seed=str(folder))
    launch = Launch(argv=(sys.executable, str(ENGINE), "--port", str(port)), env=environment, description="")
    return await start_engine(launch, plan_in(folder, port, stop_s=stop_s))


def start_supervisor(folder: Path, policy: str) -> subprocess.Popen[str]:
    port = choose_port("127.0.0.1", (), seed=str(folder))
    argv = [sys.executable, "-c", SUPERVISOR, str(folder), policy, str(port), str(ENGINE)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.stdout.close()
    return process


async def test_a_drained_engine_leaves_nothing_behind(tmp_path: Path) -> None:
    """Stopping an engine also ends its children, even one that moved to a session of its own."""
    seconds = nap(tmp_path)
    process = await start(tmp_path, STANDIN_CHILD=seconds)
    warden = process.state.warden.pid
    await asyncio.to_thread(wait_until, lambda: len(session_members(warden)) >= 3, "the engine's child")
    await asyncio.to_thread(wait_until, lambda: len(sleepers(seconds)) == 2, "both children")

    process.drain()
    end = await process.wait_ended()

    assert end.signal == signal.SIGTERM
    assert "stopped by headrace" in end.reason
    assert session_members(warden) == []
    assert sleepers(seconds) == []


async def test_an_engine_that_ignores_the_request_is_killed_after_its_bound(tmp_path: Path) -> None:
    """An engine that does not stop when asked is killed once stop_s is over."""
    process = await start(tmp_path, stop_s=0.3, STANDIN_STUBBORN="1")
    await asyncio.to_thread(wait_until, lambda: b"stubborn" in (tmp_path / "engine.log").read_bytes(), "its line")

    process.drain()
    end = await process.wait_ended()

    assert end.signal == signal.SIGKILL


async def test_last_words_of_an_engine_are_kept(tmp_path: Path) -> None:
    """How an engine ended, and what it said last, can be read after it is gone."""
    process = await start(tmp_path, STANDIN_DIE="7")

    end = await process.wait_ended()

    assert end.exit_code == 7
    assert end.reason == "exited with status 7"
    assert end.last_lines[-1] == "standin: out of memory while allocating the KV cache"
    assert b"out of memory" in (tmp_path / "engine.log").read_bytes()


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """An engine that cannot even be started says which program is missing."""
    launch = Launch(argv=("/nonexistent/engine",), env={}, description="")

    process = await start_engine(launch, plan_in(tmp_path, 1))
    end = await process.wait_ended()

    assert process.pid is None
    assert "/nonexistent/engine" in end.reason


async def test_an_engine_dies_with_its_warden(tmp_path: Path) -> None:
    """Killing the warden itself leaves no engine without a keeper, nor its children."""
    seconds = nap(tmp_path)
    process = await start(tmp_path, STANDIN_CHILD=seconds)
    engine, warden = process.state.engine, process.state.warden
    assert engine is not None
    await asyncio.to_thread(wait_until, lambda: len(session_members(warden.pid)) >= 3, "the engine's child")

    os.kill(warden.pid, signal.SIGKILL)
    end = await process.wait_ended()

    assert "warden was killed" in end.reason
    await asyncio.to_thread(wait_until, lambda: not engine.is_alive, "the engine's death")
    await asyncio.to_thread(wait_until, lambda: session_members(warden.pid) == [], "its child's death")
    for pid in sleepers(seconds):  # The one that fled into a session of its own: nobody is left to know it.
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("policy", ["stop", "keep"])
def test_loss_of_the_supervisor(tmp_path: Path, policy: str) -> None:
    """When headrace itself is killed, `stop` leaves no process behind and `keep` leaves the engine to be adopted."""
    supervisor = start_supervisor(tmp_path, policy)
    state = find_state(tmp_path / "engine.json")
    assert state is not None
    assert state.engine is not None

    supervisor.kill()
    supervisor.wait()

    if policy == "stop":
        wait_until(lambda: not session_members(state.warden.pid), "the end of engine and warden")
        ended = find_state(tmp_path / "engine.json")
        assert ended is not None
        assert ended.end is not None
        assert "supervisor was lost" in ended.end.reason
    else:
        time.sleep(0.5)  # Nothing must happen, so there is nothing to poll for.
        assert find_adoptable(tmp_path / "engine.json") == state
        os.kill(state.warden.pid, signal.SIGTERM)
        wait_until(lambda: not session_members(state.warden.pid), "the end of engine and warden")
