"""LiteLLM's proxy, pinned: release 1.107.0 is reported compromised and must not be installed."""

import json
from pathlib import Path

from benchmarks.installs import Requirement, install_peer
from benchmarks.machine import Machine
from benchmarks.running import Running, free_port, start_program, stopping_on_failure, wait_until_answering
from benchmarks.targets.contract import KEY

IMPORT_S = 180.0
"""Its imports alone take tens of seconds on one core."""


class LiteLlmTarget:
    kind = "litellm"
    title = "LiteLLM proxy"
    set_up = "master key checked, one deployment per mock engine, no database; 100 streams where others carry 500"
    is_rust_peer = False
    is_slow = True

    def prepare(self) -> str:
        requirement = Requirement(package="litellm", version="1.106.12", extra="proxy")
        self.folder = install_peer(requirement)
        return requirement.version

    def start(self, backend_ports: list[int], machine: Machine, folder: Path) -> Running:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        deployments = [
            {
                "model_name": "mock",
                "litellm_params": {
                    "model": "openai/mock",
                    "api_base": f"http://127.0.0.1:{backend}/v1",
                    "api_key": "none",
                },
            }
            for backend in backend_ports
        ]
        configuration = folder / "litellm.yaml"  # JSON is YAML
        configuration.write_text(json.dumps({"model_list": deployments, "general_settings": {"master_key": KEY}}))
        command = [str(self.folder / "litellm"), "--config", str(configuration), "--host", "127.0.0.1"]
        running = start_program(
            self.kind,
            machine.pinned(machine.proxy_core, [*command, "--port", str(port), "--telemetry", "False"]),
            folder=folder,
            port=port,
            key=KEY,
            model="mock",
            environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
        )
        with stopping_on_failure(running):
            wait_until_answering(running, start_s=IMPORT_S)
        return running
