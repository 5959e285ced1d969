"""What is there once: namespace, accounts, the model volume, and the stores that are deployed beside the gateway."""

from collections.abc import Iterator, Sequence

from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.rendering import POSTGRES_PASSWORD
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.objects import (
    ENGINES_ACCOUNT,
    GATEWAY,
    Cluster,
    KubeObject,
    Tree,
    binary_quantity,
    gateway_selector,
    kept,
    shared_labels,
    user_and_group,
)

FILE = "shared.yaml"
CLAIM = "models"
STORE_UID = 999
BASELINE_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
    | {"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)
"""Source: Kubernetes, Pod Security Standards, baseline."""
WEIGHTS_MARGIN = 2
"""Room for one more version of all weights, so that a roll-out need not delete first."""


def shared_objects(cluster: Cluster, workloads: Sequence[Workload], *, has_gateway: bool) -> Iterator[KubeObject]:
    """Yield namespace, accounts and volume."""
    yield _namespace(cluster, workloads)
    for name in (ENGINES_ACCOUNT, *((GATEWAY,) if has_gateway else ())):
        yield _account(cluster, name)
    if cluster.declaration.deployment.models.claim is None:
        yield _claim(cluster, workloads)


def security_level(cluster: Cluster, workloads: Sequence[Workload]) -> tuple[str, str]:
    """Return the strictest Pod Security Standard that all pods keep, and what keeps it from being stricter."""
    for workload in workloads:
        if workload.shm_bytes is None:
            return "privileged", f"pools.{workload.pool}.container.ipc is host"
    for workload in workloads:
        if set(cluster.pool_settings(workload).capabilities) - BASELINE_CAPABILITIES:
            return "privileged", f"pools.{workload.pool}.kubernetes.capabilities"
    for workload in workloads:
        if cluster.pool_settings(workload).capabilities:
            return "baseline", f"pools.{workload.pool}.kubernetes.capabilities"
    for workload in workloads:
        if workload.image.user is None or user_and_group(workload.image.user)[0] == 0:
            return "baseline", f"pool {workload.pool} runs as root: {workload.image.user_reason}"
    return "restricted", "no pod runs as root"


def _namespace(cluster: Cluster, workloads: Sequence[Workload]) -> KubeObject:
    level, reason = security_level(cluster, workloads)
    labels: Tree = {**shared_labels(), "pod-security.kubernetes.io/enforce": Noted(level, reason)}
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": Noted(cluster.namespace, "deployment.namespace"), "labels": labels},
    }
    return KubeObject(file=FILE, tree=tree, about="Everything is in it.")


def _account(cluster: Cluster, name: str) -> KubeObject:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": cluster.metadata(name, shared_labels()),
        "automountServiceAccountToken": False,
    }
    return KubeObject(file=FILE, tree=tree, about="Nothing here talks to the cluster's API: no token is mounted.")


def claim_bytes(cluster: Cluster, workloads: Sequence[Workload]) -> int | None:
    """Return the size of the claim for weights; None where a model's size is not known and none is declared."""
    declared = cluster.declaration.deployment.models.size_bytes
    if declared is not None:
        return declared
    sizes = {one.source_text: one.weight_bytes for workload in workloads for one in workload.weights}
    known = [size for size in sizes.values() if size is not None]
    return None if len(known) < len(sizes) else -(-sum(known) * WEIGHTS_MARGIN // 2**30) * 2**30


def _claim(cluster: Cluster, workloads: Sequence[Workload]) -> KubeObject:
    volume, key = cluster.declaration.deployment.models, "deployment.models"
    size = claim_bytes(cluster, workloads)
    assert size is not None, "notes.py has refused it"
    note = f"{key}.size_bytes" if volume.size_bytes is not None else f"{WEIGHTS_MARGIN} x the weights of all pools"
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": cluster.metadata(CLAIM, shared_labels()),
        "spec": kept(
            {
                "accessModes": Noted([volume.access], f"{key}.access"),
                "storageClassName": None
                if volume.storage_class is None
                else Noted(volume.storage_class, f"{key}.storage_class"),
                "resources": {"requests": {"storage": Noted(binary_quantity(size), note)}},
            }
        ),
    }
    about = "Weights: engines mount it read-only, init containers fetch into it. It outlives every pod."
    return KubeObject(file=FILE, tree=tree, about=about)


def store_objects(cluster: Cluster) -> Iterator[KubeObject]:
    """Yield Redis and PostgreSQL, where they are declared."""
    deployment = cluster.declaration.deployment
    if deployment.redis is not None:
        container: Tree = {
            "image": Noted(deployment.redis.image, "deployment.redis.image"),
            "args": ["--appendonly", "yes"],
            "ports": [{"name": "redis", "containerPort": 6379}],
            "readinessProbe": {"exec": {"command": ["redis-cli", "ping"]}, "periodSeconds": 10, "timeoutSeconds": 5},
            "volumeMounts": [{"name": "state", "mountPath": "/data"}],
        }
        about = "Redis for limits that gateways share. One instance: use one of your own for more."
        yield from _store(cluster, "redis", 6379, container, deployment.redis.storage_bytes, about)
    if deployment.postgres is not None:
        password = {"secretKeyRef": {"name": cluster.settings.secret, "key": POSTGRES_PASSWORD}}
        ready = ["pg_isready", "--username", "headrace"]
        container = {
            "image": Noted(deployment.postgres.image, "deployment.postgres.image"),
            "env": [
                {"name": "POSTGRES_USER", "value": "headrace"},
                {"name": "POSTGRES_DB", "value": "headrace"},
                {"name": "POSTGRES_PASSWORD", "valueFrom": password},
                Noted(
                    {"name": "PGDATA", "value": "/var/lib/postgresql/pgdata"}, "the same for all versions of the image"
                ),
            ],
            "ports": [{"name": "postgres", "containerPort": 5432}],
            "readinessProbe": {"exec": {"command": ready}, "periodSeconds": 10, "timeoutSeconds": 5},
            "volumeMounts": [{"name": "state", "mountPath": "/var/lib/postgresql"}],
        }
        about = "PostgreSQL for the ledger. One instance, without backups: use one of your own for more."
        yield from _store(cluster, "postgres", 5432, container, deployment.postgres.storage_bytes, about)


def _store(
    cluster: Cluster, name: str, port: int, container: Tree, storage_bytes: int, about: str
) -> Iterator[KubeObject]:
    selector = {"app.kubernetes.io/component": name, "app.kubernetes.io/part-of": "headrace"}
    labels = {**shared_labels(), "app.kubernetes.io/name": name, **selector}
    storage = Noted(binary_quantity(storage_bytes), f"deployment.{name}.storage_bytes")
    claim = {
        "metadata": {"name": "state"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": Noted(STORE_UID, "redis and postgres of the official Debian images"),
            "runAsGroup": STORE_UID,
            "fsGroup": STORE_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": name,
                **container,
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
    spec: Tree = {
        "replicas": 1,
        "serviceName": name,
        "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "volumeClaimTemplates": [claim],
    }
    meta = cluster.metadata(name, labels)
    file = f"{name}.yaml"
    yield KubeObject(
        file=file, tree={"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}, about=about
    )
    service: Tree = {"clusterIP": "None", "selector": selector, "ports": [{"name": name, "port": port}]}
    yield KubeObject(
        file=file,
        tree={"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
        about="For the gateway.",
    )
    policy: Tree = {
        "podSelector": {"matchLabels": selector},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": gateway_selector()}}], "ports": [{"port": port}]}],
    }
    yield KubeObject(
        file=file,
        tree={"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": policy},
        about="Only the gateway reaches it.",
    )
