"""The routers under test, each with one policy, in front of the same engines.

`KIND` or `KIND:POLICY`: `headrace`, `round-robin` (vllm-router as a plain carrier), `vllm-router:cache_aware`, ...
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.installs import Requirement, install_peer
from benchmarks.problem import BenchmarkError
from benchmarks.running import START_S, Running, free_port, start_program, stopping_on_failure, wait_until_answering
from benchmarks.targets.contract import KEY
from benchmarks.targets.headrace import find_key
from headrace.declaration.model import Probe

PEERS: dict[str, tuple[Requirement, tuple[str, ...]]] = {
    "vllm-router": (Requirement(package="vllm-router", version="0.1.17"), ("vllm-router",)),
    "sglang-router": (
        Requirement(package="sglang-router", version="0.3.2"),
        ("python", "-m", "sglang_router.launch_router"),
    ),
    "smg": (Requirement(package="smg", version="1.13.0"), ("smg", "launch")),
}
DEFAULT_ROUTERS = (
    "headrace",
    "vllm-router:cache_aware",
    "sglang-router:cache_aware",
    "smg:prefix_hash",
    "round-robin",
)
"""The policy that did best for each (benchmarks/README.md); others can be named."""
DECLARATION = """\
version: 1
gateway:
  listen: 127.0.0.1:{port}
  control: 127.0.0.1:{control_port}
models:
  "{model}": {{}}
pools:
  fleet:
    model: "{model}"
    engine: vllm
    endpoints: [{endpoints}]
    first_token_timeout_s: 3000
    probe: {{interval_s: {probe_s}}}
tenants:
  bench: {{}}
"""


def start_router(router: str, ports: list[int], model: str, folder: Path, time_scale: float = 1.0) -> Running:
    """Start a router; it answers when this returns. Raises: BenchmarkError.

    `time_scale`: simulated seconds a second; headrace reads the engines' metrics as often in simulated time as it would
    in real time. The peers' policies read none.
    """
    if router == "headrace":
        return _start_headrace(ports, model, folder, Probe().interval_s / time_scale)
    kind, _, policy = ("vllm-router", "", "round_robin") if router == "round-robin" else router.partition(":")
    if kind not in PEERS or not policy:
        raise BenchmarkError(
            f"no router {router!r}: take headrace, round-robin or one of {', '.join(PEERS)} with :POLICY"
        )
    requirement, program = PEERS[kind]
    programs = install_peer(requirement)
    port = free_port()
    command = [
        *(str(programs / program[0]), *program[1:]),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", *(f"http://127.0.0.1:{each}" for each in ports)),
        *("--policy", policy, "--api-key", KEY, "--log-level", "warning" if kind == "vllm-router" else "warn"),
        *("--request-timeout-secs", "3000"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
    ]
    running = start_program(kind, command, folder=folder, port=port, key=KEY, model=model)
    with stopping_on_failure(running):
        wait_until_answering(running)
    return running


def _start_headrace(ports: list[int], model: str, folder: Path, probe_s: float) -> Running:
    folder.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).parent / "headrace"
    port = free_port()
    declaration = folder / "headrace.yaml"
    endpoints = ", ".join(f'"http://127.0.0.1:{each}"' for each in ports)
    text = DECLARATION.format(
        port=port, control_port=free_port(), model=model, endpoints=endpoints, probe_s=f"{probe_s:.3g}"
    )
    declaration.write_text(text)
    environment = {"HEADRACE_STATE_DIR": str(folder / "state"), "HEADRACE_CACHE_DIR": str(folder / "cache")}
    running = start_program(
        "headrace",
        [str(program), "up", "--config", str(declaration)],
        folder=folder,
        port=port,
        key="none",
        model=model,
        environment=environment,
    )
    with stopping_on_failure(running):
        running.key = _make_key(running, program, declaration, environment)
        wait_until_answering(running)
    return running


def _make_key(running: Running, program: Path, declaration: Path, environment: dict[str, str]) -> str:
    command = [str(program), "keys", "create", "--tenant", "bench", "--json", "--config", str(declaration)]
    end_mono_s = time.monotonic() + START_S
    while True:
        running.require_alive()
        told = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        if told.returncode == 0:
            return find_key(told.stdout)
        if time.monotonic() > end_mono_s:
            raise BenchmarkError(f"headrace keys create failed: {told.stderr.strip()[-300:]}; {running.log_tail()}")
        time.sleep(0.2)


def version_of(router: str) -> str:
    """For the report."""
    kind = "vllm-router" if router == "round-robin" else router.partition(":")[0]
    return PEERS[kind][0].version if kind in PEERS else "this tree"
