"""A pid alone names no process: its start time does."""

import os
import subprocess
import sys

from headrace.fleet.deploy.process_identity import ProcessIdentity, own_identity, session_members


def test_a_process_is_itself() -> None:
    """This process is alive, and its identity is the same each time."""
    assert own_identity().is_alive
    assert ProcessIdentity.of(os.getpid()) == own_identity()


def test_a_reused_pid_is_another_process() -> None:
    """The same pid with another start time, or of another boot, is not the process we knew."""
    own = own_identity()
    assert not own._replace(start_ticks=own.start_ticks + 1).is_alive
    assert not own._replace(boot="another").is_alive


def test_a_zombie_is_dead() -> None:
    """A process that has ended counts as dead even before its parent has noticed."""
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read() == b""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessIdentity.of(process.pid) is None
    process.stdout.close()
    process.wait()


def test_a_session_knows_its_members() -> None:
    """All processes of a session are found, and only while they live."""
    argv = ["sh", "-c", "sleep 60 & echo up; wait"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    members = session_members(process.pid)
    assert process.pid in members
    assert len(members) == 2
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def test_no_process_has_an_impossible_pid() -> None:
    """Asking for a pid that cannot exist is answered with None."""
    assert ProcessIdentity.of(2**22 + 1) is None
