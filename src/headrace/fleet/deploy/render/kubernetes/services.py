"""Services and what else stands beside a pool's pods: files, disruption budget, network policy, monitor.

Three Services, for three readers:
1. POOL: one address, for people and tools.
2. POOL-pods: headless, for the gateway, which must see pods. Not ready ones are left out: those that load are of no
   use, those that end must get no new requests; when all are unready at once the gateway keeps the last addresses.
3. POOL-nodes: headless, only where StatefulSets make replicas of several nodes: these must find each other to become
   ready, so not ready ones are in it.
"""

from collections.abc import Iterator

from headrace.engines.registry import driver_for
from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.controllers import nodes_service, serving_selector
from headrace.fleet.deploy.render.kubernetes.objects import (
    COLOUR_LABEL,
    PEERS_LABEL,
    Cluster,
    KubeObject,
    Tree,
    engine_labels,
    engine_name,
    gateway_selector,
    own_selector,
    peers_name,
    pool_selector,
)
from headrace.fleet.deploy.render.kubernetes.triton import METRICS_PATH, is_triton


def pods_service(workload: Workload) -> str:
    """Return the name under which the gateway finds the pods."""
    return f"{object_name(workload.pool)}-pods"


def companions_of(cluster: Cluster, workload: Workload) -> Iterator[KubeObject]:
    """Yield all that stands beside the pods."""
    if workload.files:
        yield _files(cluster, workload)
    yield from _services(cluster, workload)
    yield _disruption_budget(cluster, workload)
    yield _network_policy(cluster, workload)
    if cluster.settings.pod_monitors:
        yield from _pod_monitor(cluster, workload)


def _files(cluster: Cluster, workload: Workload) -> KubeObject:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": cluster.metadata(f"{object_name(workload.pool)}-files", _labels(cluster, workload)),
        "data": {file.name: file.text for file in workload.files},
    }
    return _object(workload, tree, "Files that the engine's command names.")


def _services(cluster: Cluster, workload: Workload) -> Iterator[KubeObject]:
    name, selector = object_name(workload.pool), serving_selector(cluster, workload)
    ports = [{"name": port.name, "port": port.number, "targetPort": port.name} for port in workload.ports]
    plain: Tree = {"selector": selector, "ports": ports}
    yield _service(cluster, workload, name, plain, "One address, for people and tools; the gateway does not use it.")
    pods: Tree = {
        "clusterIP": "None",
        "publishNotReadyAddresses": Noted(False, "pods that load or end are not for the gateway"),
        **plain,
    }
    yield _service(cluster, workload, pods_service(workload), pods, "Every ready pod, for the gateway.")
    if workload.nodes > 1 and cluster.pool_settings(workload).several_nodes == "stateful-set":
        nodes: Tree = {
            "clusterIP": "None",
            "publishNotReadyAddresses": Noted(True, "nodes must meet before they can become ready"),
            "selector": own_selector(cluster, workload),
            "ports": ports[:1],
        }
        yield _service(cluster, workload, nodes_service(cluster, workload), nodes, "Where the nodes of a replica meet.")


def _service(cluster: Cluster, workload: Workload, name: str, spec: Tree, about: str) -> KubeObject:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": cluster.metadata(name, _labels(cluster, workload)),
        "spec": spec,
    }
    return _object(workload, tree, about)


def _disruption_budget(cluster: Cluster, workload: Workload) -> KubeObject:
    spec: Tree = {"selector": {"matchLabels": own_selector(cluster, workload)}}
    if workload.nodes == 1:
        spec = {"maxUnavailable": 1, **spec}
    else:
        left = (workload.replicas - 1) * workload.nodes
        spec = {"minAvailable": Noted(left, f"pods of all replicas but one, {workload.nodes} each"), **spec}
    tree: Tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": cluster.metadata(engine_name(cluster, workload), _labels(cluster, workload)),
        "spec": spec,
    }
    return _object(workload, tree, "Nodes are drained one replica at a time.")


def _network_policy(cluster: Cluster, workload: Workload) -> KubeObject:
    rules: list[object] = [
        {
            "from": [{"podSelector": {"matchLabels": gateway_selector()}}],
            "ports": [{"port": port.name} for port in workload.ports if port.name != "kv-transfer"],
        }
    ]
    if workload.role is not None:
        peers = {PEERS_LABEL: peers_name(workload.model)}
        rules.append(
            Noted(
                {"from": [{"podSelector": {"matchLabels": peers}}]},
                "KV caches travel between prefill and decode, on ports that their library chooses",
            )
        )
    if workload.nodes > 1:
        rules.append(
            Noted({"from": [{"podSelector": {"matchLabels": pool_selector(workload)}}]}, "nodes of one replica")
        )
    if cluster.settings.metrics_from:
        namespaces = {"matchLabels": dict(cluster.settings.metrics_from)}
        rules.append(
            Noted(
                {"from": [{"namespaceSelector": namespaces}], "ports": [{"port": "http"}]},
                "deployment.kubernetes.metrics_from",
            )
        )
    tree: Tree = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": cluster.metadata(object_name(workload.pool), _labels(cluster, workload)),
        "spec": {
            "podSelector": {"matchLabels": pool_selector(workload)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }
    return _object(workload, tree, "Engines have no authentication worth the name: only the gateway reaches them.")


def _pod_monitor(cluster: Cluster, workload: Workload) -> Iterator[KubeObject]:
    table = driver_for(workload.engine).metrics
    if table is None or not cluster.pool(workload).options.telemetry.metrics:
        return
    path = METRICS_PATH if is_triton(cluster, workload) else table.path
    tree: Tree = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": cluster.metadata(object_name(workload.pool), _labels(cluster, workload)),
        "spec": {
            "selector": {"matchLabels": serving_selector(cluster, workload)},
            "podMetricsEndpoints": [{"port": "http", "path": path, "interval": "15s"}],
            "podTargetLabels": ["headrace/pool"],
        },
    }
    yield _object(workload, tree, "The engine's own metrics.")


def _labels(cluster: Cluster, workload: Workload) -> dict[str, str]:
    labels = engine_labels(cluster, workload)
    return {key: value for key, value in labels.items() if key not in (COLOUR_LABEL, PEERS_LABEL)}


def _object(workload: Workload, tree: Tree, about: str) -> KubeObject:
    return KubeObject(file=f"{object_name(workload.pool)}.yaml", tree=tree, about=about)
