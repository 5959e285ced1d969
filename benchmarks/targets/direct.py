"""No proxy: the load client talks to the mock engine. What this costs is subtracted from every latency."""

from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.running import Running


class DirectTarget:
    kind = "direct"
    title = "no proxy"
    set_up = "client to mock engine"
    is_rust_peer = False
    is_slow = False

    def prepare(self) -> str:
        return "-"

    def start(self, backend_ports: list[int], machine: Machine, folder: Path) -> Running:
        port = backend_ports[0]
        return Running(name=self.kind, port=port, key="none", model="mock", process=None, mark="", log=None)
