"""The embedded llama.cpp: what its package takes instead of flags, and a short trial run whose metrics can be read."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO, cast

import httpx

from headrace.domain.operator_error import OperatorError
from headrace.engines.contract import Driver, EmittedFlag, Launch, ProbeReply, ProbeVerdict
from headrace.engines.llamacpp.config import ProcessConfig
from headrace.engines.llamacpp.process import parameters_of
from headrace.engines.verification.compare import Look
from headrace.engines.verification.help_text import HelpFacts
from headrace.extras import pip_command

START_TIMEOUT_S = 120.0
_POLL_S = 0.05
_ASK_S = 2.0
_TAIL_BYTES = 1_000
_TAIL_LINES = 3

_LISTING = """
import json, importlib.metadata, xllamacpp
seen, parameters = [], xllamacpp.CommonParams()
for name in dir(parameters):
    if not name.startswith("_"):
        seen.append(name)
        inner = getattr(parameters, name, None)
        if type(inner).__module__.startswith("xllamacpp"):
            seen += [f"{name}.{part}" for part in dir(inner) if not part.startswith("_")]
print(json.dumps({"version": importlib.metadata.version("xllamacpp"), "names": seen}))
"""
"""Run in a process of its own, since the package is 100 MB of library."""

SOURCE = "headrace/engines/llamacpp/process.py"


def look_at_package(python: Path | None = None) -> Look:
    """List the parameters that the installed xllamacpp has. Raises: OperatorError where it cannot be imported."""
    program = sys.executable if python is None else str(python)
    try:
        done = subprocess.run(
            [program, "-c", _LISTING], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise OperatorError(f"{program} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise OperatorError(f"xllamacpp in {program} said nothing for {START_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [""]
        raise OperatorError(
            f"xllamacpp cannot be imported in {program}: {last[0]}",
            hint=f"Install it ({pip_command('xllamacpp')}), or put llama-server on PATH.",
        )
    said = json.loads(done.stdout)
    facts = HelpFacts(flags=frozenset(said["names"]), deprecated=frozenset())
    version = str(said["version"])
    build = version.rpartition(".")[2]  # xllamacpp counts as year.month.build of llama.cpp
    return Look(help=facts, version=f"b{build}", origin=f"parameters of xllamacpp {version}")


def emitted_parameters() -> tuple[EmittedFlag, ...]:
    """Return every parameter that the engine's process sets, as it sets them."""
    recorder = _Recorder()
    config = ProcessConfig(
        model_path="m",
        served_model="m",
        host="127.0.0.1",
        port=1,
        context_tokens=256,
        slots=1,
        threads=1,
        batch_tokens=64,
        slot_dir="s",
        is_embedding=True,
        pooling="mean",
        chat_template="t",
    )
    parameters_of(cast("Any", _Package(recorder)), config)
    return tuple(EmittedFlag(flag=name, option="headrace", source=SOURCE) for name in recorder.names)


@contextlib.contextmanager
def trial_run(launch: Launch, driver: Driver, url: str) -> Generator[str]:
    """Run an engine for a moment and yield `url` once it is ready; it is killed at the end, whatever happens.

    Raises: OperatorError where it ends or is not ready in time.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            launch.argv, env={**os.environ, **launch.env}, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            _wait_until_ready(process, driver, url, said)
            yield url
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", driver: Driver, url: str, said: BinaryIO) -> None:
    deadline_mono_s = time.monotonic() + START_TIMEOUT_S
    while driver.read_probe(_probe(url + driver.ready_path)) is not ProbeVerdict.READY:
        if process.poll() is not None:
            said.seek(0)
            lines = said.read()[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()
            last = [line.strip() for line in lines if line.strip()][-_TAIL_LINES:]
            raise OperatorError(
                f"the engine ended with status {process.returncode} while it started: {'; '.join(last)}"
            )
        if time.monotonic() > deadline_mono_s:
            raise OperatorError(f"the engine was not ready within {START_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _probe(url: str) -> ProbeReply:
    try:
        answer = httpx.get(url, timeout=_ASK_S)
    except httpx.TimeoutException:
        return ProbeReply(status=None, is_timeout=True)
    except httpx.TransportError:
        return ProbeReply(status=None, is_refused=True)
    return ProbeReply(status=answer.status_code, body=answer.content)


class _Recorder:
    """Stands for CommonParams: notes the path of each attribute that is set."""

    def __init__(self, path: str = "", names: list[str] | None = None) -> None:
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "names", [] if names is None else names)

    path: str
    names: list[str]

    def __setattr__(self, name: str, value: object) -> None:
        self.names.append(self.path + name)

    def __getattr__(self, name: str) -> "_Recorder":
        return _Recorder(f"{self.path}{name}.", self.names)


class _Package:
    """Stands for the module xllamacpp, as far as parameters are made with it: every name in it gives the recorder."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def __call__(self) -> _Recorder:
        return self._recorder

    def __getattr__(self, name: str) -> "_Package":
        return self
