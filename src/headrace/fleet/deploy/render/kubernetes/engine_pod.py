"""The pod of an engine: init containers that fetch its weights, the engine, volumes, where it may run."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from headrace import __version__
from headrace.fleet.deploy.render.core.container_words import fetch_words
from headrace.fleet.deploy.render.core.engine_workloads import REFERENCE
from headrace.fleet.deploy.render.core.model import Weights, Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.engine_container import container_of, is_read_only
from headrace.fleet.deploy.render.kubernetes.objects import (
    ENGINES_ACCOUNT,
    FILES_ANNOTATION,
    Cluster,
    Tree,
    binary_quantity,
    engine_labels,
    kept,
    literal,
    user_and_group,
)
from headrace.fleet.deploy.render.kubernetes.probes import grace

FETCH_MEMORY_BYTES = 1 << 29
"""Of the init container. A fetch of SmolLM2 took 60 MB; the page cache is not counted against it for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is special about one node's pod."""

    labels: dict[str, str] = field(default_factory=dict[str, str])
    command: Sequence[object] | None = None
    arguments: Sequence[object] | None = None
    env: Sequence[object] = ()
    serves: bool = True
    probes: Tree | None = None
    end: Tree | None = None
    grace: Noted | None = None
    capabilities: tuple[str, ...] = ()
    """Beside those declared."""
    init: Sequence[object] = ()
    """After the fetch."""
    mounts: Sequence[object] = ()
    volumes: Sequence[object] = ()


ONLY_NODE = Node()


def pod_template(cluster: Cluster, workload: Workload, node: Node = ONLY_NODE) -> Tree:
    """Return the template of a pod that runs `workload`, or one node of it."""
    placement, key = workload.placement, f"pools.{workload.pool}"
    mounts = [*engine_mounts(cluster, workload), *node.mounts]
    spec = kept(
        {
            "serviceAccountName": ENGINES_ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": Noted(False, "a Service called vllm would set VLLM_PORT"),
            "hostIPC": Noted(True, f"{key}.container.ipc") if workload.shm_bytes is None else None,
            "runtimeClassName": _declared(placement.runtime_class, f"{key}.placement.runtime_class"),
            "nodeSelector": Noted(dict(placement.node_selector), f"{key}.placement.node_selector"),
            "tolerations": tolerations_of(cluster, workload),
            "imagePullSecrets": [{"name": name} for name in cluster.settings.pull_secrets],
            "terminationGracePeriodSeconds": node.grace or grace(cluster, workload),
            "securityContext": pod_rights(cluster, workload),
            "initContainers": [*(fetch_container(cluster, one) for one in fetched(cluster, workload)), *node.init],
            "containers": [
                container_of(
                    cluster,
                    workload,
                    mounts,
                    command=node.command,
                    arguments=node.arguments,
                    env=node.env,
                    serves=node.serves,
                    probes=node.probes,
                    end=node.end,
                    capabilities=node.capabilities,
                )
            ],
            "volumes": [*engine_volumes(cluster, workload), *node.volumes],
        }
    )
    metadata: Tree = {"labels": {**engine_labels(cluster, workload), **node.labels}}
    if workload.files:
        metadata["annotations"] = {FILES_ANNOTATION: files_digest(workload)}
    return {"metadata": metadata, "spec": spec}


def fetched(cluster: Cluster, workload: Workload) -> list[Weights]:
    """Return what init containers fetch: nothing onto a volume that nobody may write to."""
    if cluster.declaration.deployment.models.access == "ReadOnlyMany":
        return []
    return [one for one in workload.weights if one.relative_path is not None]


def fetch_container(cluster: Cluster, weights: Weights) -> object:
    """Return the init container that fetches `weights`, resumes, checks, and waits for another pod that does."""
    deployment, volume = cluster.declaration.deployment, cluster.declaration.deployment.models
    uid, gid = user_and_group(deployment.user)
    timeout_s = cluster.settings.fetch_timeout_s
    python, *words = fetch_words(weights)
    return {
        "name": "fetch-draft" if weights.is_draft else "fetch-model",
        "image": Noted(
            deployment.gateway.image or f"headrace:{__version__}",
            "headrace's own: the same store as on a single machine",
        ),
        "command": [python],
        "args": [
            *_noted_source(words, weights),
            Noted("--total-timeout-s", "deployment.kubernetes.fetch_timeout_s"),
            str(timeout_s),
        ],
        "env": [{"name": "HEADRACE_CACHE_DIR", "value": volume.mount_path}, *_fetch_env(cluster)],
        "resources": {
            "requests": {"cpu": "500m", "memory": binary_quantity(FETCH_MEMORY_BYTES)},
            "limits": {"memory": binary_quantity(FETCH_MEMORY_BYTES)},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "runAsNonRoot": uid != 0,
            "runAsUser": Noted(uid, "deployment.user"),
            "runAsGroup": gid,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            Noted({"name": "models", "mountPath": volume.mount_path}, "no other container of the pod may write here")
        ],
    }


def _fetch_env(cluster: Cluster) -> Iterator[object]:
    """Yield what else the fetch is told: mirrors, proxies, and the token for gated models."""
    declared = cluster.settings.fetch_env
    for name, text in declared.items():
        found = REFERENCE.fullmatch(text)
        entry: Tree = {"name": name}
        if found:
            entry["valueFrom"] = {"secretKeyRef": {"name": cluster.settings.secret, "key": found[1]}}
        else:
            entry["value"] = literal(text)
        yield Noted(entry, "deployment.kubernetes.fetch_env")
    if "HF_TOKEN" not in declared:
        key = {"name": cluster.settings.secret, "key": "HF_TOKEN", "optional": True}
        yield Noted({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}}, "for gated models")


def _noted_source(words: Sequence[str], weights: Weights) -> Iterator[object]:
    for word in words:
        if word in ("--source", "--sha256"):
            yield Noted(word, f"models.{weights.model}.{word.removeprefix('--')}")
        else:
            yield literal(word)


def pod_rights(cluster: Cluster, workload: Workload) -> Tree:
    """Return the pod's security context: the group of the fetching container owns the volume."""
    _, gid = user_and_group(cluster.declaration.deployment.user)
    return {
        "fsGroup": Noted(gid, "deployment.user"),
        "fsGroupChangePolicy": Noted("OnRootMismatch", "else every start walks through all weights"),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def tolerations_of(cluster: Cluster, workload: Workload) -> object:
    """Return the taints that the pods bear."""
    declared = cluster.pool_settings(workload).tolerations
    if declared is not None:
        trees = [kept(one.model_dump()) for one in declared]
        return Noted(trees, f"pools.{workload.pool}.kubernetes.tolerations")
    if not workload.gpus:
        return None
    taint = {"key": workload.placement.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    return Noted([taint], "the usual taint of nodes with GPUs")


def engine_mounts(cluster: Cluster, workload: Workload) -> list[object]:
    """Return what the engine sees: weights read-only, its files, shared memory, scratch."""
    volume = cluster.declaration.deployment.models
    mounts: list[object] = [
        Noted({"name": "models", "mountPath": volume.mount_path, "readOnly": True}, "deployment.models.mount_path")
    ]
    mounts += [
        {"name": "files", "mountPath": str(folder), "readOnly": True}
        for folder in sorted({file.path.parent for file in workload.files})
    ]
    if workload.shm_bytes is not None:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 # the pod's own
    mounts += [{"name": _scratch_name(path), "mountPath": str(path)} for path in workload.scratch_dirs]
    if is_read_only(cluster, workload):
        mounts.append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108
    return mounts


def engine_volumes(cluster: Cluster, workload: Workload) -> list[object]:
    """Return the volumes of these mounts."""
    volume = cluster.declaration.deployment.models
    claim: Tree = {"claimName": volume.claim or "models"}
    if volume.access == "ReadOnlyMany":
        claim["readOnly"] = True
    volumes: list[object] = [{"name": "models", "persistentVolumeClaim": claim}]
    if workload.files:
        volumes.append({"name": "files", "configMap": {"name": f"{object_name(workload.pool)}-files"}})
    if workload.shm_bytes is not None:
        size = Noted(binary_quantity(workload.shm_bytes), f"pools.{workload.pool}.container.shm_bytes")
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
    volumes += [{"name": _scratch_name(path), "emptyDir": {}} for path in workload.scratch_dirs]
    if is_read_only(cluster, workload):
        volumes.append({"name": "tmp", "emptyDir": {}})
    return volumes


def files_digest(workload: Workload) -> str:
    digest = hashlib.sha256()
    for file in workload.files:
        digest.update(f"{file.path}\0{file.text}\0".encode())
    return digest.hexdigest()


def _scratch_name(path: PurePosixPath) -> str:
    return f"scratch-{object_name(path.name)}"


def _declared(value: str | None, origin: str) -> Noted | None:
    return None if value is None else Noted(value, origin)
