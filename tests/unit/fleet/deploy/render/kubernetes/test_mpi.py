"""The shell of TensorRT-LLM's nodes, run for real: ssh, sshd and mpirun are small programs of the test."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.harness.manifests import documents_of
from tools.render_goldens import GOLDEN

from headrace.fleet.deploy.render.kubernetes.mpi import FIRST_NODE, OTHER_NODES

SAY = '#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@"\n'


class Node:
    """A folder that stands for one node's container."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.keys = root / "secret"
        for folder in (self.keys, root / "bin", root / "tmp"):
            folder.mkdir()
        for name in ("id_ed25519", "id_ed25519.pub"):
            (self.keys / name).write_text(name)
        self.program("mpirun", SAY)
        self.program("sshd", SAY)
        self.program("hostname", "#!/bin/sh\necho main-group-0\n")
        self.program("ssh", f'#!/bin/sh\necho "$*" >> {root}/asked\n')

    def program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, script: str, *arguments: str) -> list[str]:
        here = script.replace("/etc/headrace/mpi", str(self.keys)).replace("/run/sshd", str(self.root / "run"))
        env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "TMPDIR": str(self.root / "tmp"),
            "LWS_GROUP_SIZE": "3",
            "LWS_LEADER_ADDRESS": "main-group-0.main-group.llm",
            "GPUS_PER_NODE": "8",
        }
        words = ["/bin/sh", "-c", here, "mpi", *arguments]
        return subprocess.run(
            words, env=env, capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_first_node_starts_all_ranks_when_the_others_are_there(node: Node) -> None:
    """Every node is asked by its name in the group's Service, then MPI gets all of them and the engine's command."""
    words = node.run(FIRST_NODE, "trtllm-llmapi-launch", "trtllm-serve", "serve", "a model")
    assert words[0] == "mpirun"
    assert words[words.index("-np") + 1] == "24"
    hosts = "main-group-0:8,main-group-0-1.main-group.llm:8,main-group-0-2.main-group.llm:8"
    assert words[words.index("--host") + 1] == hosts
    assert words[-4:] == ["trtllm-llmapi-launch", "trtllm-serve", "serve", "a model"]
    asked = (node.root / "asked").read_text().splitlines()
    assert [line.split()[-2] for line in asked] == ["main-group-0-1.main-group.llm", "main-group-0-2.main-group.llm"]


def test_a_node_that_is_late_is_waited_for(node: Node) -> None:
    """MPI would fail at once where a node does not answer yet."""
    node.program("sleep", "#!/bin/sh\n")
    node.program("ssh", f'#!/bin/sh\necho x >> {node.root}/asked\n[ "$(wc -l < {node.root}/asked)" -gt 2 ]\n')
    assert node.run(FIRST_NODE, "serve")[0] == "mpirun"
    assert len((node.root / "asked").read_text().splitlines()) == 4


def test_keys_are_for_their_owner_alone(node: Node) -> None:
    """ssh refuses keys that others may read."""
    words = node.run(OTHER_NODES)
    assert words[0] == "sshd"
    assert words[words.index("-p") + 1] == "2222"
    kept = node.root / "tmp" / "mpi" / "id_ed25519"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert f"AuthorizedKeysFile {kept}.pub" in words


def test_only_the_first_node_serves() -> None:
    """The others have an ssh server and no probe; all mount the keys, and nobody else may reach them."""
    documents = documents_of((GOLDEN / "kubernetes" / "tensorrt-mpi.yaml").read_text())
    group = next(one for one in documents if one["kind"] == "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    first, others = (group[key]["spec"]["containers"][0] for key in ("leaderTemplate", "workerTemplate"))
    assert "mpirun" in first["command"][2]
    assert "sshd" in others["command"][2]
    assert "readinessProbe" in first
    assert not any("Probe" in key for key in others)
    assert first["args"][:2] == ["trtllm-llmapi-launch", "trtllm-serve"]
    assert first["args"][-2:] == ["--gpus_per_node", "8"]
