"""For --split: a kustomization of the base, and an overlay for each declared environment."""

from collections.abc import Iterator, Sequence

from headrace.declaration.kubernetes_sections import Environment
from headrace.fleet.deploy.render.core.model import RenderedFile, RenderNote, Severity, Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted, yaml_text
from headrace.fleet.deploy.render.kubernetes.objects import GATEWAY, Cluster, KubeObject, Tree, engine_name, kept
from headrace.fleet.deploy.render.kubernetes.scaling import triggers_of

ENVIRONMENT_LABEL = "headrace/environment"
NAME = "kustomization.yaml"


def kustomize_files(
    cluster: Cluster, workloads: Sequence[Workload], objects: Sequence[KubeObject], *, base: str
) -> Iterator[RenderedFile]:
    """Yield the kustomizations; they mean something in a folder only."""
    resources = list(dict.fromkeys(one.file for one in objects))
    yield _file(f"{base}/{NAME}", {"resources": resources}, ("Everything as declared.",))
    for name, environment in cluster.settings.environments.items():
        tree = overlay_of(cluster, workloads, objects, name, environment, base=base)
        head = (f"Environment {name}.", f"kubectl apply --kustomize overlays/{object_name(name)}")
        yield _file(f"overlays/{object_name(name)}/{NAME}", tree, head)


def overlay_of(
    cluster: Cluster,
    workloads: Sequence[Workload],
    objects: Sequence[KubeObject],
    name: str,
    environment: Environment,
    *,
    base: str,
) -> Tree:
    """Return what one environment changes."""
    key = f"deployment.kubernetes.environments.{name}"
    namespace = environment.namespace or f"{cluster.namespace}-{object_name(name)}"
    counts: list[object] = []
    patches: list[object] = []
    for workload in workloads:
        patches += _query_patches(cluster, workload, namespace)
        count = environment.replicas.get(workload.pool)
        if count is None:
            continue
        noted = Noted(count, f"{key}.replicas.{workload.pool}")
        if workload.nodes == 1:
            counts.append({"name": engine_name(cluster, workload), "count": noted})
        else:
            target = {"kind": "LeaderWorkerSet", "name": engine_name(cluster, workload)}
            patches.append(_patch(target, "/spec/replicas", noted))
    if environment.gateway_replicas is not None and any(one.name == GATEWAY for one in objects):
        noted = Noted(environment.gateway_replicas, f"{key}.gateway_replicas")
        if cluster.settings.gateway_maximum is None:
            counts.append({"name": GATEWAY, "count": noted})
        else:
            target = {"kind": "HorizontalPodAutoscaler", "name": GATEWAY}
            patches.append(_patch(target, "/spec/minReplicas", noted))
    return kept(
        {
            "namespace": Noted(namespace, f"{key}.namespace"),
            "resources": [f"../../{base}"],
            "labels": [{"pairs": {ENVIRONMENT_LABEL: object_name(name)}}],
            "replicas": counts,
            "patches": patches,
        }
    )


def environment_notes(cluster: Cluster, workloads: Sequence[Workload], *, has_database: bool) -> Iterator[RenderNote]:
    """Yield what of the environments cannot be."""
    by_pool = {workload.pool: workload for workload in workloads}
    for name, environment in cluster.settings.environments.items():
        key = f"deployment.kubernetes.environments.{name}"
        if not object_name(name):
            yield _error(key, "makes no name of a folder", "Rename it")
        for pool in environment.replicas:
            workload = by_pool.get(pool)
            at = f"{key}.replicas.{pool}"
            if workload is None:
                if pool not in cluster.declaration.pools:
                    yield _error(at, "is no pool of this declaration", "Correct the name")
                continue
            settings = cluster.pool_settings(workload)
            if settings.autoscale is not None:
                yield _error(at, "contradicts the pool's autoscale", "Leave one of them out")
            elif workload.nodes > 1 and settings.several_nodes == "stateful-set":
                yield _error(at, "cannot change the number of StatefulSets", "Use several_nodes: leader-worker-set")
        if (environment.gateway_replicas or 1) > 1 and not has_database:
            yield _error(
                f"{key}.gateway_replicas",
                "is more than 1 without a database that gateways share",
                "Give ledger.database or deployment.postgres",
            )


def _query_patches(cluster: Cluster, workload: Workload, namespace: str) -> Iterator[object]:
    """KEDA's queries name the namespace, which kustomize does not know to change."""
    autoscale = cluster.pool_settings(workload).autoscale
    if autoscale is None or autoscale.by != "keda":
        return
    target = {"kind": "ScaledObject", "name": engine_name(cluster, workload)}
    yield _patch(target, "/spec/triggers", triggers_of(cluster, workload, autoscale, namespace=namespace))


def _patch(target: Tree | dict[str, str], path: str, value: object) -> object:
    """Write a JSON patch, which kustomize takes as text."""
    return {"target": dict(target), "patch": yaml_text([{"op": "replace", "path": path, "value": value}])}


def _file(path: str, tree: Tree, head: Sequence[str]) -> RenderedFile:
    whole = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **tree}
    return RenderedFile(path=path, text=yaml_text(whole, head=head), is_only_split=True)


def _error(key: str, message: str, hint: str) -> RenderNote:
    return RenderNote(severity=Severity.ERROR, key=key, message=message, hint=hint)
