"""The warden: a tiny process between the supervisor and one engine (`python -m headrace.fleet.deploy.warden`).

It starts the engine in a process group of its own, captures its output into a rotated log, writes down how it ended,
and sees to it that nothing is left: not after a drain, not after the death of the supervisor, not after its own.
Its order arrives as JSON on stdin, since it may hold secrets. Counterpart: `engine_process.py`. Stdlib only.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

from headrace.fleet.deploy.process_identity import ProcessIdentity, own_identity, session_members
from headrace.fleet.deploy.rotated_log import RotatedLog
from headrace.fleet.deploy.warden_state import EngineEnd, WardenState, write_state

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Source: prctl(2)."""
LOSS_STOP_S = 2.0
"""Drain bound when the supervisor is gone: its gateway is gone too, so nobody waits for the answers."""
READ_BYTES = 65536
IDLE_POLL_S = 5.0
"""Longest sleep: a second way to notice a lost supervisor where pidfd is not available."""

Order = dict[str, Any]
"""argv, env, log_path, log_bytes, log_files, state_path, supervisor_file, supervisor, policy, stop_s, port, digest."""


class Warden:
    """Runs one engine to its end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._log = RotatedLog(
            Path(order["log_path"]), limit_bytes=int(order["log_bytes"]), keep_files=int(order["log_files"])
        )
        self._supervisor = ProcessIdentity(**order["supervisor"])
        self._policy = str(order["policy"])
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._self = own_identity()
        self._engine: ProcessIdentity | None = None
        self._engine_pid = 0
        self._wait_status: int | None = None
        self._reason = ""
        self._kill_mono_s: float | None = None
        self._output = -1
        self._poll = select.poll()
        self._pidfd = -1
        self._started_at = time.time()  # noqa: TID251 - stdlib only: no domain.clock here

    def run(self) -> int:
        """Start the engine and stay until it and all it started are gone."""
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake = self._listen_to_signals()
        error = self._try_start_engine()
        if error:
            self._write(EngineEnd(self._now_at(), None, None, error, []))
            return 0
        self._write(None)
        self._watch_supervisor()
        self._poll.register(wake, select.POLLIN)
        self._poll.register(self._output, select.POLLIN)
        while self._wait_status is None:
            self._turn(wake)
        self._sweep()
        self._read_rest()
        self._write(self._describe_end(self._wait_status))
        return 0

    def _turn(self, wake: int) -> None:
        """Wait for one thing to happen, and act on it."""
        timeout_s = IDLE_POLL_S
        if self._kill_mono_s is not None:
            timeout_s = max(0.0, min(timeout_s, self._kill_mono_s - time.monotonic()))
        for descriptor, _ in self._poll.poll(timeout_s * 1000):
            if descriptor == wake:
                self._take_signals(os.read(wake, 512))
            elif descriptor == self._output:
                self._read_output()
        if not self._supervisor.is_alive:
            self._lose_supervisor()
        if self._kill_mono_s is not None and time.monotonic() >= self._kill_mono_s:
            self._signal_group(signal.SIGKILL)
            self._kill_mono_s = time.monotonic() + 1.0

    def _listen_to_signals(self) -> int:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, _wake_up)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return reader

    def _take_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._drain(float(self._order["stop_s"]), "stopped by headrace")
        if signal.SIGHUP in numbers:
            self._adopt_supervisor()
        self._reap()

    def _try_start_engine(self) -> str | None:
        """Start the engine; the answer says why it could not be."""
        warden_pid = os.getpid()

        def die_with_warden() -> None:
            self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != warden_pid:
                os._exit(1)

        self._output, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._output, False)
        try:
            process = subprocess.Popen(
                cast("list[str]", self._order["argv"]),
                env={**os.environ, **self._order["env"]},
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                process_group=0,
                preexec_fn=die_with_warden,  # Safe: this process has one thread.
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"cannot start {self._order['argv'][0]}: {error}"
        finally:
            os.close(writer)
        self._engine_pid = process.pid
        process.returncode = 0  # Reaped by `_reap`, with everything else that this subreaper inherits.
        self._engine = ProcessIdentity.of(self._engine_pid)
        return None

    def _watch_supervisor(self) -> None:
        """Wake up at the very moment the supervisor ends."""
        if self._pidfd >= 0:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(self._supervisor.pid)
            self._poll.register(self._pidfd, select.POLLIN)
        except OSError:
            self._pidfd = -1  # Gone already, or no pidfd here: `_turn` looks every IDLE_POLL_S.

    def _lose_supervisor(self) -> None:
        if self._pidfd >= 0:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._policy == "stop":
            self._drain(min(LOSS_STOP_S, float(self._order["stop_s"])), "stopped: the supervisor was lost")

    def _adopt_supervisor(self) -> None:
        """SIGHUP: another supervisor has taken over; its file says who it is."""
        try:
            document = cast("Order", json.loads(Path(self._order["supervisor_file"]).read_bytes()))
            self._supervisor = ProcessIdentity(**document["process"])
            self._policy = str(document["on_supervisor_loss"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        self._watch_supervisor()

    def _drain(self, bound_s: float, reason: str) -> None:
        if self._kill_mono_s is None:
            self._reason = reason
            self._kill_mono_s = time.monotonic() + bound_s
            self._signal_engine(signal.SIGTERM)

    def _signal_engine(self, number: int) -> None:
        """Tell the engine alone: workers of vLLM and SGLang that hear SIGTERM themselves cut the streams that run."""
        try:
            os.kill(self._engine_pid, number)
        except ProcessLookupError:
            pass  # Gone already.

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._engine_pid, number)
        except ProcessLookupError:
            pass  # Gone already.

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._engine_pid:
                self._wait_status = status

    def _sweep(self) -> None:
        """Kill what the engine left behind: its group, and what left the group (re-parented to this subreaper)."""
        self._signal_group(signal.SIGKILL)
        end_mono_s = time.monotonic() + 5.0
        while time.monotonic() < end_mono_s:
            self._reap()
            remaining = _descendants()
            if not remaining:
                return
            for pid in remaining:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # Gone meanwhile.
            time.sleep(0.02)

    def _read_output(self) -> bool:
        """Take what the engine wrote; False at its end."""
        try:
            chunk = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._poll.unregister(self._output)
            return False
        self._log.write(chunk)
        return True

    def _read_rest(self) -> None:
        try:
            while self._read_output():
                pass
        except KeyError:
            pass  # Its end had been seen before.
        self._log.close()

    def _describe_end(self, status: int) -> EngineEnd:
        code = os.waitstatus_to_exitcode(status)
        signal_number = -code if code < 0 else None
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        reason = f"{self._reason} ({how})" if self._reason else how
        return EngineEnd(self._now_at(), code if code >= 0 else None, signal_number, reason, self._log.last_lines())

    def _write(self, end: EngineEnd | None) -> None:
        state = WardenState(
            warden=self._self,
            engine=self._engine,
            port=int(self._order["port"]),
            digest=str(self._order["digest"]),
            started_at=self._started_at,
            end=end,
        )
        try:
            write_state(Path(self._order["state_path"]), state)
        except OSError as error:
            self._log.write(f"headrace warden: cannot write the state file: {error}\n".encode())

    @staticmethod
    def _now_at() -> float:
        return time.time()  # noqa: TID251 - stdlib only: no domain.clock here


def _wake_up(_number: int, _frame: object) -> None:
    """Do nothing: the number arrives through the wake-up descriptor."""


def _descendants() -> set[int]:
    """Living processes that the engine left: of this session, or re-parented to this subreaper."""
    own = os.getpid()
    found = set(session_members(own)) - {own}
    try:
        found.update(int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split())
    except OSError:
        pass  # A kernel without CONFIG_PROC_CHILDREN.
    return found


def main() -> int:
    """Run the order that arrives on stdin."""
    return Warden(cast("Order", json.loads(sys.stdin.buffer.read()))).run()


if __name__ == "__main__":
    sys.exit(main())
