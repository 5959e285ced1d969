"""The three Rust gateways: smg, sglang-router and vllm-router, each with its key check on.

Each is measured twice, with its log as it ships and with warnings only: headrace records every request.
"""

from pathlib import Path

from benchmarks.installs import Requirement, install_peer
from benchmarks.machine import Machine
from benchmarks.running import Running, free_port, start_program, stopping_on_failure, wait_until_answering
from benchmarks.targets.contract import KEY
from benchmarks.targets.key_server import key_server_url

WITH_KEYS = Path(__file__).with_name("vllm_router_with_keys.py")


class RustRouterTarget:
    is_rust_peer = True
    is_slow = False

    def __init__(self, *, requirement: Requirement, program: tuple[str, ...], quiet: str | None) -> None:
        """`quiet`: the level at which only warnings are logged; None leaves the log as the program ships it."""
        self.kind = requirement.package + ("-quiet" if quiet else "")
        self.title = requirement.package + (", warnings only" if quiet else "")
        log = "log of warnings only, to a file" if quiet else "log as it ships, to a file"
        self.set_up = f"key checked, round robin, retries, breaker, metrics; {log}"
        self._requirement = requirement
        self._program = program
        self._quiet = quiet

    def prepare(self) -> str:
        self.folder = install_peer(self._requirement)
        return self._requirement.version

    def start(self, backend_ports: list[int], machine: Machine, folder: Path) -> Running:
        port = free_port()
        command = [
            *(str(self.folder / self._program[0]), *self._program[1:]),
            *((key_server_url(),) if str(WITH_KEYS) in self._program else ()),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--worker-urls", *(f"http://127.0.0.1:{backend}" for backend in backend_ports)),
            *("--policy", "round_robin", "--api-key", KEY),
            *(("--log-level", self._quiet) if self._quiet else ()),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        ]
        running = start_program(
            self.kind, machine.pinned(machine.proxy_core, command), folder=folder, port=port, key=KEY, model="mock"
        )
        with stopping_on_failure(running):
            wait_until_answering(running)
        return running


_ROUTERS = (
    (Requirement(package="smg", version="1.13.0"), ("smg", "launch"), "warn"),
    (
        Requirement(package="sglang-router", version="0.3.2"),
        ("python", "-m", "sglang_router.launch_router"),
        "warn",
    ),
    (Requirement(package="vllm-router", version="0.1.17"), ("python", str(WITH_KEYS)), "warning"),
)
"""The peers in the versions that were measured (PyPI, Apache-2.0), and what each calls its level of warnings."""


def rust_routers() -> tuple[RustRouterTarget, ...]:
    """Each peer twice: with its log as it ships, and with warnings only."""
    return tuple(
        RustRouterTarget(requirement=requirement, program=program, quiet=level)
        for requirement, program, warnings in _ROUTERS
        for level in (None, warnings)
    )
