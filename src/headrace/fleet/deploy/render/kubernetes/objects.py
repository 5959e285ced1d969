"""What all objects share: names, labels, quantities, and the file in which an object is written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from headrace.declaration.kubernetes_sections import Kubernetes, KubernetesPool
from headrace.declaration.model import Declaration, Pool
from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted

POOL_LABEL = "headrace/pool"
COLOUR_LABEL = "headrace/colour"
PEERS_LABEL = "headrace/peers"
"""Pools of one model between which KV caches travel."""
FILES_ANNOTATION = "headrace/files-sha256"
"""Of what the pod mounts, so that a change of it starts new pods."""
GATEWAY = "gateway"
ENGINES_ACCOUNT = "engines"

Tree = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeObject:
    """One object."""

    file: str
    """Name of the file without folder."""
    tree: Mapping[str, object]
    about: str
    """What it is for, in the words of the declaration; stands above it."""

    @property
    def kind(self) -> str:
        return str(self.tree["kind"])

    @property
    def name(self) -> str:
        name = cast("Mapping[str, object]", self.tree["metadata"])["name"]
        return str(name.value if isinstance(name, Noted) else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where everything goes."""

    declaration: Declaration
    namespace: str

    @property
    def settings(self) -> Kubernetes:
        return self.declaration.deployment.kubernetes

    def pool(self, workload: Workload) -> Pool:
        return self.declaration.pools[workload.pool]

    def pool_settings(self, workload: Workload) -> KubernetesPool:
        return self.pool(workload).kubernetes

    def metadata(self, name: str, labels: Mapping[str, str], **more: object) -> Tree:
        return {"name": name, "namespace": self.namespace, "labels": dict(labels), **more}


def kept(tree: Mapping[str, object]) -> Tree:
    """Leave out what is not there: None, and empty maps and lists."""
    return {key: value for key, value in tree.items() if not _is_empty(value)}


def _is_empty(value: object) -> bool:
    inner = value.value if isinstance(value, Noted) else value
    return inner is None or (isinstance(inner, (dict, list, tuple)) and not inner)


def engine_name(cluster: Cluster, workload: Workload) -> str:
    """Return the name of a pool's Deployment or its like.

    A LeaderWorkerSet makes a headless Service of its own name for its pods, unless there is one: none of ours may be.
    """
    settings = cluster.pool_settings(workload)
    name = object_name(workload.pool)
    if workload.nodes > 1 and settings.several_nodes == "leader-worker-set":
        return f"{name}-group"
    return f"{name}-{settings.colour}" if settings.strategy == "blue-green" else name


def engine_labels(cluster: Cluster, workload: Workload) -> dict[str, str]:
    """Return the labels of a pool's pods; with blue-green, of those of this declaration."""
    settings = cluster.pool_settings(workload)
    labels = {
        "app.kubernetes.io/name": workload.engine.value,
        "app.kubernetes.io/component": "engine",
        **shared_labels(),
        **pool_selector(workload),
    }
    if settings.strategy == "blue-green":
        labels[COLOUR_LABEL] = settings.colour
    if workload.role is not None:
        labels[PEERS_LABEL] = peers_name(workload.model)
    return labels


def peers_name(model: str) -> str:
    """Write a model's name as the value of a label."""
    return object_name(model)[:63].rstrip("-")


def shared_labels() -> dict[str, str]:
    return {"app.kubernetes.io/part-of": "headrace", "app.kubernetes.io/managed-by": "headrace-render"}


def own_selector(cluster: Cluster, workload: Workload) -> dict[str, str]:
    """Select the pods of a pool's own Deployment or its like: these labels can never change."""
    settings = cluster.pool_settings(workload)
    colour = {COLOUR_LABEL: settings.colour} if settings.strategy == "blue-green" else {}
    return {**pool_selector(workload), **colour}


def pool_selector(workload: Workload) -> dict[str, str]:
    return {POOL_LABEL: object_name(workload.pool)}


def gateway_selector() -> dict[str, str]:
    return {"app.kubernetes.io/component": "gateway", "app.kubernetes.io/part-of": "headrace"}


def gateway_labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": "headrace", **shared_labels(), **gateway_selector()}


def binary_quantity(size_bytes: int) -> str:
    """Write bytes as Kubernetes does, in the largest binary unit that loses nothing."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size_bytes and size_bytes % 1024**power == 0:
            return f"{size_bytes // 1024**power}{unit}"
    return str(size_bytes)


def cpu_quantity(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def user_and_group(user: str) -> tuple[int, int]:
    """Split UID or UID:GID."""
    uid, _, gid = user.partition(":")
    return int(uid), int(gid or uid)


_MEANS_SOMETHING = re.compile(r"\${2,}|\$(?=\()")
"""Kubernetes takes $(NAME) for a reference and $$ for one dollar, wherever they stand."""


def literal(text: str) -> str:
    """Keep Kubernetes from expanding what is not meant as a reference."""
    return _MEANS_SOMETHING.sub(lambda found: found[0] * 2, text)
