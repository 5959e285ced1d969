"""TensorRT-LLM over several nodes: MPI starts its processes, from a replica's first node, on the others over ssh.

Needs an image of one's own with an ssh server beside TensorRT-LLM, and a Secret with a key pair. Read in TensorRT-LLM's
docs (trtllm-llmapi-launch) and Open MPI's; nothing was run but these scripts.
"""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.model import RenderNote, Severity, Workload
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.engine_container import noted_arguments
from headrace.fleet.deploy.render.kubernetes.engine_pod import Node
from headrace.fleet.deploy.render.kubernetes.objects import Cluster, Tree
from headrace.fleet.deploy.render.kubernetes.probes import nodes_grace, nodes_lifecycle

PORT = 2222
KEYS_DIR = "/etc/headrace/mpi"
KEY = "id_ed25519"
CAPABILITIES = ("SETGID", "SETUID", "SYS_CHROOT")
"""Without which sshd cannot separate its privileges. Source: OpenSSH, sshd(8)."""

COPY_KEYS = f"""\
set -e
keys="${{TMPDIR:-/tmp}}/mpi"
mkdir -p -m 700 "$keys"
cp {KEYS_DIR}/{KEY} {KEYS_DIR}/{KEY}.pub "$keys/"
chmod 600 "$keys/{KEY}" "$keys/{KEY}.pub"
"""
"""A Secret's files are links that others may read; ssh wants neither."""

FIRST_NODE = (
    COPY_KEYS
    + f"""\
options="-p {PORT} -i $keys/{KEY} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
hosts="$(hostname):$GPUS_PER_NODE"
node=1
while [ "$node" -lt "$LWS_GROUP_SIZE" ]; do
  host="${{LWS_LEADER_ADDRESS%%.*}}-$node.${{LWS_LEADER_ADDRESS#*.}}"
  until ssh $options "$host" true; do sleep 2; done
  hosts="$hosts,$host:$GPUS_PER_NODE"
  node=$((node + 1))
done
exec "$(command -v mpirun)" --allow-run-as-root -np $((LWS_GROUP_SIZE * GPUS_PER_NODE)) --host "$hosts" \\
  --mca plm_rsh_args "$options" -x PATH -x LD_LIBRARY_PATH -x HF_HUB_OFFLINE "$@"
"""
)
"""Waits for every other node, then starts all ranks. The full path makes Open MPI find itself there."""

OTHER_NODES = (
    COPY_KEYS
    + f"""\
mkdir -p /run/sshd
exec "$(command -v sshd || echo /usr/sbin/sshd)" -D -e -p {PORT} -h "$keys/{KEY}" \\
  -o "AuthorizedKeysFile $keys/{KEY}.pub" -o "StrictModes no" -o "UsePAM no" -o "PasswordAuthentication no"
"""
)
"""Serves ssh to the first node alone: the network policy keeps all others away."""


def uses_mpi(workload: Workload) -> bool:
    return workload.engine is EngineKind.TENSORRT_LLM and workload.nodes > 1


def mpi_nodes(cluster: Cluster, workload: Workload) -> tuple[Node, Node]:
    """Return the first node and the others."""
    mount = Noted({"name": "mpi", "mountPath": KEYS_DIR, "readOnly": True}, _key(workload))
    volume: Tree = {"name": "mpi", "secret": {"secretName": cluster.pool_settings(workload).mpi_keys}}
    gpus = {"name": "GPUS_PER_NODE", "value": str(workload.gpus_per_node)}
    served = [
        "trtllm-llmapi-launch",
        *workload.image.command,
        *noted_arguments(cluster, workload),
        Noted("--gpus_per_node", f"pools.{workload.pool}.placement.gpus_per_node"),
        str(workload.gpus_per_node),
    ]
    first = Node(
        command=["/bin/sh", "-c", FIRST_NODE, "mpi"],
        arguments=served,
        env=[gpus],
        mounts=[mount],
        volumes=[volume],
        capabilities=CAPABILITIES,
    )
    others = Node(
        command=["/bin/sh", "-c", OTHER_NODES, "mpi"],
        arguments=[],
        mounts=[mount],
        volumes=[volume],
        serves=False,
        end=nodes_lifecycle(cluster, workload),
        grace=nodes_grace(cluster, workload),
        capabilities=CAPABILITIES,
    )
    return first, others


def mpi_notes(cluster: Cluster, workload: Workload) -> Iterator[RenderNote]:
    """Yield what is missing for MPI."""
    if not uses_mpi(workload):
        return
    settings, pool = cluster.pool_settings(workload), cluster.pool(workload)
    if settings.mpi_keys is None or pool.container.image is None:
        yield _error(
            f"pools.{workload.pool}.placement.gpus_per_node",
            f"makes {workload.nodes} nodes, which TensorRT-LLM starts by MPI over ssh: its own image has no ssh server",
            "Give container.image, with openssh-server, and kubernetes.mpi_keys, or keep a replica on one node",
        )
    if settings.several_nodes == "stateful-set":
        yield _error(
            f"pools.{workload.pool}.kubernetes.several_nodes",
            "is stateful-set, but the nodes of TensorRT-LLM differ in their commands",
            "Use leader-worker-set",
        )
    if settings.tensorrt in ("engine", "triton"):
        yield _error(
            f"pools.{workload.pool}.kubernetes.tensorrt",
            f"is {settings.tensorrt}, which is rendered for one node",
            "Use pytorch",
        )


def _key(workload: Workload) -> str:
    return f"pools.{workload.pool}.kubernetes.mpi_keys"


def _error(key: str, message: str, hint: str) -> RenderNote:
    return RenderNote(severity=Severity.ERROR, key=key, message=message, hint=hint)
