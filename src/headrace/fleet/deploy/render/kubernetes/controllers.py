"""What keeps a pool's pods: a Deployment, or where a replica spans nodes a LeaderWorkerSet or StatefulSets."""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.container_words import health_words, whole_s
from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.multi_node import node_words
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.engine_container import noted_arguments
from headrace.fleet.deploy.render.kubernetes.engine_pod import ONLY_NODE, Node, pod_template
from headrace.fleet.deploy.render.kubernetes.mpi import mpi_nodes, uses_mpi
from headrace.fleet.deploy.render.kubernetes.objects import (
    COLOUR_LABEL,
    Cluster,
    KubeObject,
    Tree,
    engine_labels,
    engine_name,
    kept,
    own_selector,
)
from headrace.fleet.deploy.render.kubernetes.probes import (
    lead_s,
    needed_grace_s,
    nodes_grace,
    nodes_lifecycle,
    probes_of,
)

LEADER_ADDRESS, WORKER_INDEX = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"
"""Set by LeaderWorkerSet ahead of a container's own variables. Source: kubernetes-sigs/lws pkg/utils/pod/pod_utils.go
and api/leaderworkerset/v1."""
LWS_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
"""Of a StatefulSet's pods, since Kubernetes 1.28."""
REPLICA_LABEL = "headrace/replica"
NODE_VARIABLE = "HEADRACE_NODE"
IMAGE_PULL_S = 1800
"""Until an engine's image of 10 to 20 GB is on a node, in general less. Assumed."""


def controllers_of(cluster: Cluster, workload: Workload, node: Node = ONLY_NODE) -> Iterator[KubeObject]:
    """Yield what keeps the pods of `workload`."""
    if workload.nodes == 1:
        yield _deployment(cluster, workload, node)
    elif cluster.pool_settings(workload).several_nodes == "leader-worker-set":
        yield _leader_worker_set(cluster, workload)
    else:
        for replica in range(workload.replicas):
            yield _stateful_set(cluster, workload, replica)


def start_bound_s(cluster: Cluster, workload: Workload) -> int:
    """Return how long the first start of a pod may take: image, weights, loading."""
    return IMAGE_PULL_S + cluster.settings.fetch_timeout_s + whole_s(workload.load_timeout_s)


def serving_selector(cluster: Cluster, workload: Workload) -> dict[str, str]:
    """Select the pods to which requests are sent: of several nodes the first; with blue-green, one colour."""
    settings = cluster.pool_settings(workload)
    selector = own_selector(cluster, workload)
    if settings.strategy == "blue-green":
        selector[COLOUR_LABEL] = settings.serve
    if workload.nodes > 1:
        is_lws = settings.several_nodes == "leader-worker-set"
        selector[LWS_INDEX_LABEL if is_lws else POD_INDEX_LABEL] = "0"
    return selector


def replicas_of(cluster: Cluster, workload: Workload) -> Noted | None:
    """Return the fixed number of replicas; None where it follows the load."""
    if cluster.pool_settings(workload).autoscale is not None:
        return None
    declared = workload.placement.replicas is not None
    return Noted(workload.replicas, f"pools.{workload.pool}.{'placement.replicas' if declared else 'replicas'}")


def _deployment(cluster: Cluster, workload: Workload, node: Node) -> KubeObject:
    settings = cluster.pool_settings(workload)
    spec = kept(
        {
            "replicas": replicas_of(cluster, workload),
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": Noted(
                start_bound_s(cluster, workload), "image, fetch_timeout_s and load_timeout_s"
            ),
            "strategy": Noted(_strategy(cluster, workload), f"pools.{workload.pool}.kubernetes.strategy"),
            "selector": {"matchLabels": own_selector(cluster, workload)},
            "template": pod_template(cluster, workload, node),
        }
    )
    name = engine_name(cluster, workload)
    about = f"Pool {workload.pool}: {workload.model} on {workload.engine.value}."
    if settings.strategy == "blue-green":
        about += (
            f"\nThe {settings.colour} set; requests go to {settings.serve}. Apply without pruning until it is served."
        )
    return _engine_object(cluster, workload, "apps/v1", "Deployment", name, spec, about)


def _strategy(cluster: Cluster, workload: Workload) -> Tree:
    strategy = cluster.pool_settings(workload).strategy
    if strategy == "rolling":
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {"type": "Recreate"}


def _leader_worker_set(cluster: Cluster, workload: Workload) -> KubeObject:
    if uses_mpi(workload):
        leader, worker = mpi_nodes(cluster, workload)
    else:
        leader, worker = _own_nodes(cluster, workload)
    spec = _group_spec(cluster, workload, leader, worker)
    about = f"Pool {workload.pool}: {workload.model} on {workload.engine.value}, {workload.nodes} nodes a replica."
    name = engine_name(cluster, workload)
    return _engine_object(cluster, workload, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec, about)


def _own_nodes(cluster: Cluster, workload: Workload) -> tuple[Node, Node]:
    """Return the first node and the others, which meet by the engine's own flags."""
    leader = Node(arguments=_node_arguments(cluster, workload, rank="0", leader=LEADER_ADDRESS))
    worker = Node(
        arguments=_node_arguments(cluster, workload, rank=WORKER_INDEX, leader=LEADER_ADDRESS),
        serves=False,
        end=nodes_lifecycle(cluster, workload),
        grace=nodes_grace(cluster, workload),
    )
    return leader, worker


def _group_spec(cluster: Cluster, workload: Workload, leader: Node, worker: Node) -> Tree:
    return kept(
        {
            "replicas": replicas_of(cluster, workload),
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": Noted(workload.nodes, f"GPUs of a replica by pools.{workload.pool}.placement.gpus_per_node"),
                "restartPolicy": Noted("RecreateGroupOnPodRestart", "nodes that lost one of them never meet again"),
                "leaderTemplate": pod_template(cluster, workload, leader),
                "workerTemplate": pod_template(cluster, workload, worker),
            },
        }
    )


def _stateful_set(cluster: Cluster, workload: Workload, replica: int) -> KubeObject:
    name = f"{engine_name(cluster, workload)}-{replica}"
    labels = {REPLICA_LABEL: str(replica)}
    leader = f"{name}-0.{nodes_service(cluster, workload)}"
    rank = f"$({NODE_VARIABLE})"
    words = list(_node_arguments(cluster, workload, rank=rank, leader=leader, is_rank_known=False))
    node = Node(
        labels=labels,
        command=_node_command(workload),
        arguments=[*_leading_words(workload), *words],
        env=[
            {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{POD_INDEX_LABEL}']"}}}
        ],
        probes=_leader_probes(workload),
        end=_first_node_ends_first(cluster, workload),
        grace=nodes_grace(cluster, workload),
    )
    spec: Tree = {
        "replicas": Noted(workload.nodes, f"nodes of replica {replica}"),
        "serviceName": nodes_service(cluster, workload),
        "podManagementPolicy": Noted("Parallel", "the nodes of a replica start together"),
        "updateStrategy": Noted({"type": "OnDelete"}, "delete all pods of a replica together: it has one world"),
        "selector": {"matchLabels": {**own_selector(cluster, workload), **labels}},
        "template": pod_template(cluster, workload, node),
    }
    about = f"Pool {workload.pool}, replica {replica}: {workload.nodes} nodes of {workload.engine.value}."
    return _engine_object(cluster, workload, "apps/v1", "StatefulSet", name, spec, about)


def nodes_service(cluster: Cluster, workload: Workload) -> str:
    return f"{engine_name(cluster, workload)}-nodes"


def _node_arguments(
    cluster: Cluster, workload: Workload, *, rank: str, leader: str, is_rank_known: bool = True
) -> list[object]:
    """Return the engine's arguments and those by which nodes meet, whose references Kubernetes expands."""
    words = node_words(workload.engine, nodes=workload.nodes, rank=rank, leader=leader)
    if not is_rank_known:
        words = tuple(word for word in words if word != "--headless")  # the shell adds it on all but the first
    meeting = [
        Noted(word, f"pools.{workload.pool}.placement.gpus_per_node") if word.startswith("--") else word
        for word in words
    ]
    return [*noted_arguments(cluster, workload), *meeting]


def _node_command(workload: Workload) -> list[object]:
    if workload.engine is not EngineKind.VLLM:
        return list(workload.image.command)
    script = f'if [ "${NODE_VARIABLE}" = 0 ]; then exec "$@"; else exec "$@" --headless; fi'
    return ["/bin/sh", "-c", script, "node"]


def _leading_words(workload: Workload) -> list[object]:
    return list(workload.image.command) if workload.engine is EngineKind.VLLM else []


def _leader_probes(workload: Workload) -> Tree:
    """Ask the first node alone: the others of a StatefulSet have the same template, and nothing that answers."""

    def ask(path: str) -> Tree:
        words = health_words(workload.http_port, path, workload.image.http_client)
        script = f'[ "${NODE_VARIABLE}" != 0 ] || exec "$@"'
        return {"exec": {"command": ["/bin/sh", "-c", script, "probe", *words]}}

    return probes_of(workload, ask)


def _first_node_ends_first(cluster: Cluster, workload: Workload) -> Tree:
    lead, all_s = lead_s(cluster.pool(workload)), needed_grace_s(cluster, workload)
    script = f'if [ "${NODE_VARIABLE}" = 0 ]; then exec sleep {lead}; else exec sleep {all_s}; fi'
    note = "the first node until the gateway sends no more, the others until it has drained"
    return {"preStop": Noted({"exec": {"command": ["/bin/sh", "-c", script]}}, note)}


def _engine_object(
    cluster: Cluster, workload: Workload, version: str, kind: str, name: str, spec: Tree, about: str
) -> KubeObject:
    tree: Tree = {
        "apiVersion": version,
        "kind": kind,
        "metadata": cluster.metadata(name, engine_labels(cluster, workload)),
        "spec": spec,
    }
    return KubeObject(file=f"{object_name(workload.pool)}.yaml", tree=tree, about="\n".join([about, *workload.notes]))
