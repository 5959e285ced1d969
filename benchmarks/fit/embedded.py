"""The embedded llama.cpp as the engine under measurement, with the bundled model."""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import httpx

from headrace.declaration.builtin import BUILTIN_MODEL, BUILTIN_SHA256, BUILTIN_SOURCE
from headrace.fleet.deploy.models import ModelStore
from headrace.settings import load_settings
from headrace.simulation.model import CacheKind
from headrace.simulation.samples import EngineShape

SLOTS, BATCH_TOKENS, CONTEXT_TOKENS = 8, 256, 1024
START_TIMEOUT_S = 120
SHAPE = EngineShape(
    cache=CacheKind.SLOTS,
    max_sequences=SLOTS,
    max_batched_tokens=BATCH_TOKENS,
    context_tokens=CONTEXT_TOKENS,
    kv_tokens=SLOTS * CONTEXT_TOKENS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server under measurement."""

    url: str
    model: str
    engine: str
    """Name and version."""
    pid: int | None = None
    """Of its process, if it was started here."""


def cpu_clock(pid: int) -> Callable[[], float]:
    """Return a clock that shows the CPU seconds a process has used. Source: clock_gettime(2), Linux's clock ids."""
    clock_id = (~pid << 3) | 2
    return lambda: time.clock_gettime(clock_id)


@contextlib.contextmanager
def running_embedded(threads: int) -> Iterator[RunningServer]:
    """Start the engine; killed at the end."""
    model = ModelStore(load_settings().cache_dir).ensure_now(BUILTIN_SOURCE, BUILTIN_SHA256, "q8_0")
    with tempfile.TemporaryDirectory(prefix="headrace-fit-") as folder:
        port = _free_port()
        config = {
            "model_path": str(model),
            "served_model": BUILTIN_MODEL,
            "host": "127.0.0.1",
            "port": port,
            "context_tokens": CONTEXT_TOKENS,
            "slots": SLOTS,
            "threads": threads,
            "batch_tokens": BATCH_TOKENS,
            "slot_dir": folder,
            "prompt_cache_mib": 0,
        }
        command = [sys.executable, "-m", "headrace.engines.llamacpp.process", "--config", json.dumps(config)]
        with Path(folder, "engine.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process)
            name = f"llama.cpp (xllamacpp {version('xllamacpp')}), {threads} threads"
            yield RunningServer(url=url, model=BUILTIN_MODEL, engine=name, pid=process.pid)
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline_mono_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_mono_s:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the embedded engine did not start")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
