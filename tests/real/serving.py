"""Runs a real engine as a process of its own and ends it with all its children: `RealEngine`, `serving(recipe)`."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.harness.ports import free_port
from tests.real.installation import InstallRecipe, ensure_installed, ensure_model

from headrace.declaration.builtin import BUILTIN_MODEL
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import Driver, ProbeReply, ProbeVerdict
from headrace.engines.registry import driver_for
from headrace.gateway.handover.core.events import Side

START_S = 600.0
"""Both engines take 20 to 90 s on two shared cores, more beside other loads; only a broken one still loads then."""

END_S = 20.0
"""From SIGKILL until the last process is gone."""

CONTEXT_TOKENS = 2048
EXACT = ("--dtype", "float32")
"""For pairs: a prompt computed at once, in parts or elsewhere gives the same text; in bfloat16 near-ties fall either
way, on one engine too."""
OWN_VARIABLES = ("PYTHON", "VIRTUAL_ENV", "PYTEST")
"""Variables that begin so would show the engine our Python packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecipe:
    """How two processes of an engine become a prefill and a decode engine, which hand KV over on this machine."""

    args: Callable[[Side, int], Sequence[str]]
    """Added to the recipe's, given the port for transfers."""
    env: Callable[[Side, int], Mapping[str, str]]
    pool: Callable[[Side, Mapping[str, Any]], dict[str, Any]]
    """What a declared pool of such an engine has beside the recipe's own keys, which are given."""
    needs: str
    """Python statements that fail in the engine's environment where a library of the system is missing."""
    packages: str
    """What to install then."""
    answers_whole: bool
    """Whether an engine of a pair answers requests that are not handed over."""
    held: Callable[[str], str]
    """What requests hold at the engine of a URL right now: places and KV; empty where nothing."""
    transfers_metric: tuple[Side, str]
    """Which of the two counts what was moved, and under which name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRecipe:
    """How to start an engine that `install` has brought."""

    install: InstallRecipe
    argv: Callable[[Path, Path, int], Sequence[str]]
    """Of the environment's Python, the model folder and the port."""
    env: Mapping[str, str]
    pool: Callable[[Path], Mapping[str, Any]]
    """Keys of a declared pool that start the same on this CPU, given the environment's Python."""
    running_metric: str
    """Prometheus name of the number of requests that run now."""
    live_requests: Callable[[str], int]
    """Requests that the engine at a URL works on or holds in its queue right now, by its quickest means."""
    core_name: str
    """Part of the command line of the process that computes."""
    pair: PairRecipe

    @property
    def kind(self) -> EngineKind:
        return self.install.kind


class RealEngine:
    """One engine on one port, started and ended as often as a test likes: an `EngineUnderTest` of the contract."""

    start_bound_s = START_S
    context_tokens = CONTEXT_TOKENS
    served_model = BUILTIN_MODEL

    def __init__(
        self, recipe: ServeRecipe, python: Path, model: Path, folder: Path, *, port: int | None = None
    ) -> None:
        self.recipe = recipe
        self.kind = recipe.kind
        self.version = recipe.install.version
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.python = python
        self.model = model
        self.log_path = folder / "engine.log"
        self.extra_args: tuple[str, ...] = ()
        """Added to the recipe's at the next start."""
        self.extra_env: Mapping[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def driver(self) -> Driver:
        return driver_for(self.kind)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def members(self) -> dict[int, str]:
        """Living processes of the engine's session, with their command lines."""
        return {} if self.process is None else processes_of_session(self.process.pid)

    def launch(self) -> None:
        """Start the process and return without waiting."""
        assert not self.members(), "it runs already"
        self.end()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.recipe.argv(self.python, self.model, self.port), *self.extra_args],
                env={**clean_environment(), **self.recipe.env, **self.extra_env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> float:
        """Wait until the driver's probe says so, and return how long that took."""
        started_mono_s = time.monotonic()
        while self.verdict() is not ProbeVerdict.READY:
            took_s = time.monotonic() - started_mono_s
            if self.process is None or self.process.poll() is not None or took_s > START_S:
                raise RuntimeError(f"{self.kind} did not start: {self.log()[-4000:]}")
            time.sleep(0.1)
        return time.monotonic() - started_mono_s

    def verdict(self) -> ProbeVerdict:
        return self.driver.read_probe(probe(self.url + self.driver.ready_path))

    def end(self) -> None:
        """Kill whatever of it is alive, its workers too, and reap it."""
        if self.process is None:
            return
        deadline_mono_s = time.monotonic() + END_S
        while members := self.members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            if time.monotonic() > deadline_mono_s:
                raise RuntimeError(f"processes that cannot be killed: {members}")
            time.sleep(0.05)
        self.process.wait()

    def metric(self, name: str) -> float | None:
        return read_metric(self.url, name)

    def live_requests(self) -> int:
        return self.recipe.live_requests(self.url)

    def signal_all(self, number: signal.Signals) -> None:
        """To each of its processes, such as SIGSTOP."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def send_sigterm(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def kill_core(self) -> None:
        """SIGKILL for the process that computes; its HTTP server is left to notice it."""
        cores = [pid for pid, command in self.members().items() if self.recipe.core_name in command]
        assert cores, self.members()
        for pid in cores:
            os.kill(pid, signal.SIGKILL)

    async def start(self) -> None:
        self.launch()

    async def terminate(self) -> None:
        self.send_sigterm()

    async def kill(self) -> None:
        self.end()

    async def running_requests(self) -> int:
        return int(self.metric(self.recipe.running_metric) or 0)


@contextlib.contextmanager
def serving(recipe: ServeRecipe, *extra_args: str, port: int | None = None) -> Iterator[RealEngine]:
    """Install where needed, start, wait until ready; at the end nothing of it is left.

    Raises: NotInstallableError.
    """
    python, model = ensure_installed(recipe.install), ensure_model()
    with tempfile.TemporaryDirectory(prefix=f"headrace-{recipe.kind}-") as folder:
        engine = RealEngine(recipe, python, model, Path(folder), port=port)
        engine.extra_args = extra_args
        try:
            engine.launch()
            engine.wait_until_ready()
            yield engine
        finally:
            engine.end()


def read_metric(url: str, name: str) -> float | None:
    """Sum of the samples of `name` in an engine's metrics, None where there are none."""
    lines = httpx.get(f"{url}/metrics", timeout=30, follow_redirects=True).text.splitlines()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    return sum(values) if values else None


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}


def probe(url: str, timeout_s: float = 5.0) -> ProbeReply:
    """Ask as the supervisor does."""
    try:
        answer = httpx.get(url, timeout=timeout_s)
    except httpx.TimeoutException:
        return ProbeReply(status=None, is_timeout=True)
    except httpx.TransportError:
        return ProbeReply(status=None, is_refused=True)
    return ProbeReply(status=answer.status_code, body=answer.content)


def processes_of_session(session_id: int) -> dict[int, str]:
    """Living processes of a session (zombies left out), whatever group they are in."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            state, _, _, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(session) == session_id and state != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found
