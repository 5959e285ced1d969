"""Starting processes that may outlive us, and noticing their end whoever their parent is (pidfd, not SIGCHLD)."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from headrace.fleet.deploy.process_identity import ProcessIdentity, session_members

POLL_S = 0.1
"""Where pidfd is not available (kernels before 5.3)."""


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    output: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> ProcessIdentity | None:
    """Start a process in a session of its own, so that a terminal's Ctrl-C reaches only the supervisor.

    Returns None where it was gone at once.
    """
    process = subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )
    if process.stdin is not None:
        try:
            process.stdin.write(stdin or b"")
            process.stdin.close()
        except BrokenPipeError:
            pass  # It died already: its exit will be seen.
    process.returncode = 0  # Watched and reaped by `wait_gone`: it may have to outlive this object.
    return ProcessIdentity.of(process.pid)


async def wait_gone(process: ProcessIdentity) -> None:
    """Return once the process has ended; reaps it where it is our child."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        while process.is_alive:  # noqa: ASYNC110 - nothing to wait for but the process table
            await asyncio.sleep(POLL_S)
        reap(process.pid)
        return
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    try:
        if process.is_alive:  # Otherwise the descriptor may belong to another process with this pid.
            loop.add_reader(descriptor, lambda: gone.done() or gone.set_result(None))
            await gone
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    reap(process.pid)


async def wait_gone_within(process: ProcessIdentity, bound_s: float) -> bool:
    """Wait for the end of `process`; False where it still lives after `bound_s`."""
    try:
        async with asyncio.timeout(bound_s):
            await wait_gone(process)
    except TimeoutError:
        return not process.is_alive
    return True


async def end_process(process: ProcessIdentity, bound_s: float) -> None:
    """Ask a process to end, and kill it where it has not after `bound_s`; returns once it is gone."""
    try_signal(process, signal.SIGTERM)
    await wait_or_kill(process, bound_s)


async def wait_or_kill(process: ProcessIdentity, bound_s: float) -> bool:
    """Wait for the end of a process that was told to, and kill it after `bound_s`; False where it had to be."""
    is_gone = await wait_gone_within(process, bound_s)
    if not is_gone:
        try_signal(process, signal.SIGKILL)
        await wait_gone(process)
    return is_gone


def reap(pid: int) -> None:
    """Remove the zombie of a child of ours."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # Started by an earlier supervisor: its parent is gone, init reaps it.


def try_signal(process: ProcessIdentity, number: int) -> None:
    """Send a signal, unless the process is gone."""
    try:
        if process.is_alive:
            os.kill(process.pid, number)
    except ProcessLookupError:
        pass  # Gone between the two lines.


def kill_session(session: int, *, but: int | None = None) -> None:
    """Kill everything that a warden or worker has left, except the process `but`."""
    for pid in session_members(session):
        if pid == but:
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # Gone meanwhile.
