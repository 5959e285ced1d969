"""The three Rust gateways: smg, sglang-router and vllm-router, each with its key check on where it has one."""

from pathlib import Path

from benchmarks.installs import Requirement, install_peer
from benchmarks.machine import Machine
from benchmarks.running import Running, free_port, start_program, stopping_on_failure, wait_until_answering
from benchmarks.targets.contract import KEY


class RustRouterTarget:
    is_rust_peer = True
    is_slow = False

    def __init__(self, *, requirement: Requirement, program: tuple[str, ...], quiet: str, set_up: str) -> None:
        self.kind = self.title = requirement.package
        self.set_up = set_up
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
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--worker-urls", *(f"http://127.0.0.1:{backend}" for backend in backend_ports)),
            *("--policy", "round_robin", "--api-key", KEY, "--log-level", self._quiet),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        ]
        running = start_program(
            self.kind, machine.pinned(machine.proxy_core, command), folder=folder, port=port, key=KEY, model="mock"
        )
        with stopping_on_failure(running):
            wait_until_answering(running)
        return running


def rust_routers() -> tuple[RustRouterTarget, ...]:
    """The peers in the versions that were measured; PyPI, Apache-2.0."""
    return (
        RustRouterTarget(
            requirement=Requirement(package="smg", version="1.13.0"),
            program=("smg", "launch"),
            quiet="warn",
            set_up="key checked, round robin, retries, breaker, metrics; request log off",
        ),
        RustRouterTarget(
            requirement=Requirement(package="sglang-router", version="0.3.2"),
            program=("python", "-m", "sglang_router.launch_router"),
            quiet="warn",
            set_up="key checked, round robin, retries, breaker, metrics; request log off",
        ),
        RustRouterTarget(
            requirement=Requirement(package="vllm-router", version="0.1.17"),
            program=("vllm-router",),
            quiet="warning",
            set_up="no key check to be had, round robin, retries, breaker, metrics; request log off",
        ),
    )
