"""The gateway: headrace itself, its declaration as a ConfigMap, secrets by reference, and what stands beside it."""

import hashlib
from collections.abc import Iterator

from headrace.fleet.deploy.render.core.container_words import GATEWAY_FILE, GATEWAY_MARGIN_S, whole_s
from headrace.fleet.deploy.render.core.model import GatewayWorkload
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.objects import (
    FILES_ANNOTATION,
    GATEWAY,
    Cluster,
    KubeObject,
    Tree,
    binary_quantity,
    cpu_quantity,
    gateway_labels,
    gateway_selector,
    kept,
    user_and_group,
)

LEAD_S = 10
"""How long a gateway that is to end still takes requests: until Services and proxies have seen it. Chosen."""
BUSY_CPU_PERCENT = 70
ABOUT = """\
The gateway. Its command is `headrace up` without the welcome, which would put the first keys into the pod's log.
A key: kubectl exec deploy/gateway -- headrace keys create --tenant TENANT"""
FILE = "gateway.yaml"


def gateway_objects(
    cluster: Cluster, gateway: GatewayWorkload, *, keeps_state: bool, ready_s: int
) -> Iterator[KubeObject]:
    """Yield the gateway's objects.

    `keeps_state`: it has its own database, on a volume, and so is alone. It is ready when an engine is, in `ready_s`.
    """
    yield _config(cluster, gateway)
    if keeps_state:
        yield _state(cluster)
    yield _deployment(cluster, gateway, keeps_state=keeps_state, ready_s=ready_s)
    yield _service(cluster, gateway)
    if not keeps_state:
        yield _disruption_budget(cluster)
    if cluster.settings.gateway_maximum is not None:
        yield _autoscaler(cluster, gateway)
    yield _network_policy(cluster, gateway)
    if cluster.settings.pod_monitors:
        yield _pod_monitor(cluster)


def _config(cluster: Cluster, gateway: GatewayWorkload) -> KubeObject:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "data": {"headrace.yaml": gateway.declaration_text},
    }
    return KubeObject(file=FILE, tree=tree, about="The declaration as the gateway reads it: engines by their Services.")


def _state(cluster: Cluster) -> KubeObject:
    size = Noted(binary_quantity(cluster.settings.state_bytes), "deployment.kubernetes.state_bytes")
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": cluster.metadata("gateway-state", gateway_labels()),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }
    return KubeObject(file=FILE, tree=tree, about="Journal, ledger and keys of the one gateway: back it up.")


def _deployment(cluster: Cluster, gateway: GatewayWorkload, *, keeps_state: bool, ready_s: int) -> KubeObject:
    strategy: Tree = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    replicas: object = Noted(gateway.replicas, "deployment.gateway.replicas")
    spec = kept(
        {
            "replicas": None if cluster.settings.gateway_maximum is not None else replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": Noted(ready_s, "it is ready when an engine is"),
            "strategy": Noted({"type": "Recreate"}, "its state has one owner") if keeps_state else strategy,
            "selector": {"matchLabels": gateway_selector()},
            "template": {
                "metadata": {
                    "labels": gateway_labels(),
                    "annotations": {
                        FILES_ANNOTATION: hashlib.sha256(gateway.declaration_text.encode()).hexdigest(),
                    },
                },
                "spec": _pod(cluster, gateway, keeps_state=keeps_state),
            },
        }
    )
    tree: Tree = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "spec": spec,
    }
    return KubeObject(file=FILE, tree=tree, about=ABOUT)


def _pod(cluster: Cluster, gateway: GatewayWorkload, *, keeps_state: bool) -> Tree:
    uid, gid = user_and_group(gateway.user)
    grace_s = LEAD_S + whole_s(gateway.drain_s) + GATEWAY_MARGIN_S
    state: Tree = {"name": "state", "emptyDir": {}}
    if keeps_state:
        state = {"name": "state", "persistentVolumeClaim": {"claimName": "gateway-state"}}
    volumes: list[object] = [
        {"name": "declaration", "configMap": {"name": GATEWAY}},
        state if keeps_state else Noted(state, "what is not yet in the database goes with the pod"),
        {"name": "tmp", "emptyDir": {}},
        *_secret_volumes(cluster, gateway),
    ]
    spread: Tree = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": gateway_selector()},
    }
    return kept(
        {
            "serviceAccountName": GATEWAY,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "imagePullSecrets": [{"name": name} for name in cluster.settings.pull_secrets],
            "terminationGracePeriodSeconds": Noted(
                grace_s, f"preStop {LEAD_S} s, gateway.drain_s {gateway.drain_s:g}, {GATEWAY_MARGIN_S} s to end"
            ),
            "securityContext": {
                "runAsNonRoot": uid != 0,
                "runAsUser": Noted(uid, "deployment.user"),
                "runAsGroup": gid,
                "fsGroup": gid,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [] if keeps_state else [spread],
            "containers": [_container(cluster, gateway)],
            "volumes": volumes,
        }
    )


def _container(cluster: Cluster, gateway: GatewayWorkload) -> Tree:
    settings = cluster.settings
    memory = Noted(binary_quantity(settings.gateway_memory_bytes), "deployment.kubernetes.gateway_memory_bytes")
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": settings.secret, "key": name}}}
        for name in gateway.secret_variables
    ]
    scheme: Tree = {"scheme": "HTTPS"} if gateway.has_tls else {}
    live: Tree = {"path": gateway.health.alive, "port": "http", **scheme}
    return kept(
        {
            "name": "gateway",
            "image": Noted(gateway.image, gateway.image_origin),
            "command": ["python", "-m", "headrace.wiring"],
            "args": ["--config", GATEWAY_FILE],
            "env": [
                Noted({"name": "HEADRACE_CONFIG", "value": GATEWAY_FILE}, "for commands that are run beside it"),
                Noted(
                    {"name": "HEADRACE_STATE_DIR", "value": str(gateway.state_dir / "state")},
                    "a folder of its own within the volume, whose own belongs to root",
                ),
                {"name": "HEADRACE_CACHE_DIR", "value": "/tmp/headrace"},  # noqa: S108 # the pod's own
                *secrets,
            ],
            "ports": [
                Noted({"name": "http", "containerPort": gateway.listen_port}, "gateway.listen"),
                Noted({"name": "control", "containerPort": gateway.control_port}, "gateway.control"),
            ],
            "resources": {
                "requests": {
                    "cpu": Noted(cpu_quantity(settings.gateway_cpus), "deployment.kubernetes.gateway_cpus"),
                    "memory": memory,
                },
                "limits": {"memory": memory},
            },
            "startupProbe": {"httpGet": live, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 60},
            "readinessProbe": {
                "httpGet": {"path": gateway.health.ready, "port": "http", **scheme},
                "periodSeconds": 5,
                "timeoutSeconds": 5,
                "failureThreshold": 2,
            },
            "livenessProbe": {"httpGet": live, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
            "lifecycle": {"preStop": {"sleep": {"seconds": LEAD_S}}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                {"name": "declaration", "mountPath": "/etc/headrace", "readOnly": True},
                {"name": "state", "mountPath": str(gateway.state_dir)},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                *_secret_mounts(gateway),
            ],
        }
    )


def _secret_mounts(gateway: GatewayWorkload) -> list[object]:
    folders = sorted({file.path.parent for file in gateway.secret_files})
    return [{"name": "secrets", "mountPath": str(folder), "readOnly": True} for folder in folders]


def _secret_volumes(cluster: Cluster, gateway: GatewayWorkload) -> list[object]:
    if not gateway.secret_files:
        return []
    items = [
        Noted({"key": file.name, "path": file.path.name}, f"{file.origin}: {file.host_path}")
        for file in gateway.secret_files
    ]
    return [
        {"name": "secrets", "secret": {"secretName": cluster.settings.secret, "defaultMode": 0o440, "items": items}}
    ]


def _service(cluster: Cluster, gateway: GatewayWorkload) -> KubeObject:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "spec": {
            "selector": gateway_selector(),
            "ports": [{"name": "http", "port": gateway.listen_port, "targetPort": "http"}],
        },
    }
    return KubeObject(file=FILE, tree=tree, about="Where callers connect. The control port is not in it.")


def _disruption_budget(cluster: Cluster) -> KubeObject:
    tree: Tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": gateway_selector()}},
    }
    return KubeObject(file=FILE, tree=tree, about="Nodes are drained one gateway at a time.")


def _autoscaler(cluster: Cluster, gateway: GatewayWorkload) -> KubeObject:
    settle_s = min(3600, max(300, whole_s(gateway.drain_s)))
    tree: Tree = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": GATEWAY},
            "minReplicas": Noted(gateway.replicas, "deployment.gateway.replicas"),
            "maxReplicas": Noted(cluster.settings.gateway_maximum, "deployment.kubernetes.gateway_maximum"),
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": BUSY_CPU_PERCENT},
                    },
                }
            ],
            "behavior": {
                "scaleDown": {
                    "stabilizationWindowSeconds": Noted(settle_s, "streams of a gateway have had gateway.drain_s"),
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                }
            },
        },
    }
    return KubeObject(file=FILE, tree=tree, about="More gateways when they use their CPUs.")


def _network_policy(cluster: Cluster, gateway: GatewayWorkload) -> KubeObject:
    rules: list[object] = [Noted({"ports": [{"port": "http"}]}, "callers, from anywhere")]
    if cluster.settings.metrics_from:
        namespaces = {"matchLabels": dict(cluster.settings.metrics_from)}
        rules.append(
            Noted(
                {"from": [{"namespaceSelector": namespaces}], "ports": [{"port": "control"}]},
                "deployment.kubernetes.metrics_from",
            )
        )
    tree: Tree = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "spec": {
            "podSelector": {"matchLabels": gateway_selector()},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }
    return KubeObject(file=FILE, tree=tree, about="The control port is for operators: kubectl port-forward reaches it.")


def _pod_monitor(cluster: Cluster) -> KubeObject:
    tree: Tree = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": cluster.metadata(GATEWAY, gateway_labels()),
        "spec": {
            "selector": {"matchLabels": gateway_selector()},
            "podMetricsEndpoints": [{"port": "control", "path": "/metrics", "interval": "15s"}],
        },
    }
    return KubeObject(file=FILE, tree=tree, about="The gateway's metrics.")
