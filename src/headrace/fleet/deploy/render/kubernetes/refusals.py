"""What Kubernetes in particular cannot be given: each with the key to change."""

from collections import Counter
from collections.abc import Iterator, Sequence

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.engine_workloads import REFERENCE
from headrace.fleet.deploy.render.core.model import RenderNote, Severity, Workload
from headrace.fleet.deploy.render.core.object_names import name_notes, object_name
from headrace.fleet.deploy.render.kubernetes.mpi import mpi_notes
from headrace.fleet.deploy.render.kubernetes.objects import Cluster, KubeObject
from headrace.fleet.deploy.render.kubernetes.probes import lead_s
from headrace.fleet.deploy.render.kubernetes.scaling import can_select, engine_signals
from headrace.fleet.deploy.render.kubernetes.shared_objects import claim_bytes

LEAST_DRAIN_S = 5
"""Less is no drain. Chosen."""


def cluster_notes(cluster: Cluster, workloads: Sequence[Workload], *, has_gateway: bool) -> Iterator[RenderNote]:
    """Yield what of the whole cannot be rendered, or only with a risk."""
    declaration = cluster.declaration
    yield from name_notes(declaration)
    volume = declaration.deployment.models
    if volume.claim is None and workloads and claim_bytes(cluster, workloads) is None:
        yield _error(
            "deployment.models.size_bytes",
            "is needed: the size of some weights is not known, so neither is that of their volume",
            "Give it, or models.<name>.weight_bytes of each model, or deployment.models.claim",
        )
    replicas = sum(workload.replicas * workload.nodes for workload in workloads)
    if volume.access == "ReadWriteOnce" and replicas > 1:
        yield _warning(
            "deployment.models.access",
            f"is ReadWriteOnce, which one node mounts: {replicas} pods that need it must run on the same node",
            "Use a storage class that offers ReadWriteMany",
        )
    for name, text in cluster.settings.fetch_env.items():
        if "${" in text and not REFERENCE.fullmatch(text):
            yield _error(
                f"deployment.kubernetes.fetch_env.{name}",
                "holds a reference within other text, which cannot be rendered without showing it",
                "Make the whole value one ${env:NAME}",
            )
    if cluster.settings.pod_monitors and not cluster.settings.metrics_from:
        yield _warning(
            "deployment.kubernetes.metrics_from",
            "names no namespace: the network policies keep Prometheus away from what the PodMonitors tell it to read",
            "Such as kubernetes.io/metadata.name: monitoring",
        )
    if volume.access == "ReadOnlyMany":
        yield _warning("deployment.models.access", "is ReadOnlyMany: nothing is fetched, the weights must be there")
    if has_gateway and declaration.deployment.gateway.replicas > 1 and not has_database(declaration):
        yield _error(
            "deployment.gateway.replicas",
            "is more than 1 without a database that gateways share: a key made at one would be unknown to the others",
            "Give ledger.database or deployment.postgres",
        )
    if has_gateway and cluster.settings.gateway_maximum is not None and not has_database(declaration):
        yield _error(
            "deployment.kubernetes.gateway_maximum",
            "is given without a database that gateways share",
            "Give ledger.database or deployment.postgres",
        )


def has_database(declaration: Declaration) -> bool:
    """Whether the gateway's ledger and keys are kept outside its own pod."""
    return declaration.ledger.database is not None or declaration.deployment.postgres is not None


def workload_notes(cluster: Cluster, workload: Workload) -> Iterator[RenderNote]:
    """Yield what of one pool cannot be rendered, or only with a risk."""
    settings, key = cluster.pool_settings(workload), f"pools.{workload.pool}"
    if object_name(workload.pool)[:1].isdigit():
        yield _error(key, "begins with a digit, which the name of a Service must not", "Rename it")
    lead = lead_s(cluster.pool(workload))
    if settings.grace_s is not None and settings.grace_s < lead + LEAST_DRAIN_S:
        yield _error(
            f"{key}.kubernetes.grace_s",
            f"is {settings.grace_s}, of which {lead} s pass until the gateway sends no more: the rest is no drain",
            f"Give at least {lead + LEAST_DRAIN_S}, or lower discover_interval_s",
        )
    if workload.nodes > 1:
        yield from _several_nodes_notes(cluster, workload)
    if settings.autoscale is not None:
        yield from _autoscale_notes(cluster, workload)
    for one in workload.weights:
        if one.relative_path is None:
            place = f"local/{one.path.name} on the model volume"
            yield _warning(f"models.{one.model}.source", f"is a file of this machine: put it at {place}")


def _several_nodes_notes(cluster: Cluster, workload: Workload) -> Iterator[RenderNote]:
    settings, key = cluster.pool_settings(workload), f"pools.{workload.pool}"
    yield from mpi_notes(cluster, workload)
    if settings.strategy != "recreate":
        yield _error(
            f"{key}.kubernetes.strategy",
            f"is {settings.strategy}, but a replica over several nodes is replaced as a whole",
            "Take it out",
        )


def _autoscale_notes(cluster: Cluster, workload: Workload) -> Iterator[RenderNote]:
    settings, key = cluster.pool_settings(workload), f"pools.{workload.pool}.kubernetes.autoscale"
    autoscale = settings.autoscale
    assert autoscale is not None
    if autoscale.by == "keda" and cluster.settings.prometheus is None:
        yield _error(
            "deployment.kubernetes.prometheus", f"is needed by {key}", "Give its URL, or set autoscale.by: hpa"
        )
    if workload.nodes > 1 and settings.several_nodes == "stateful-set":
        yield _error(key, "cannot change the number of StatefulSets", "Use several_nodes: leader-worker-set")
    if not cluster.pool(workload).options.telemetry.metrics:
        yield _error(key, "needs the engine's metrics", "Set telemetry.metrics")
    if autoscale.by == "hpa" and not can_select(workload.model):
        said = f"has no effect in the gateway: {workload.model} is no value of a label, by which its queue is asked for"
        yield _warning(f"{key}.waiting", said, "Use autoscale.by: keda")
    found = {signal.origin.rpartition(".")[2] for signal in engine_signals(workload, autoscale)}
    for missing in sorted({"waiting", "kv_utilization"} - found):
        yield _warning(
            f"{key}.{missing}",
            f"{workload.engine.value} {workload.image.engine_version or ''} has no such metric: ".replace("  ", " ")
            + ("only the gateway's queue counts" if missing == "waiting" else "it has no effect"),
        )


def object_notes(objects: Sequence[KubeObject]) -> Iterator[RenderNote]:
    """Yield objects that would overwrite each other, such as those of pools a and a-files."""
    counts = Counter((one.kind, one.name) for one in objects)
    counts.update(("Service", one.name) for one in objects if one.kind == "LeaderWorkerSet")  # its controller makes it
    for (kind, name), count in counts.items():
        if count > 1:
            yield _error("pools", f"{count} objects would be the {kind} {name}", "Rename a pool")


def _error(key: str, message: str, hint: str | None = None) -> RenderNote:
    return RenderNote(severity=Severity.ERROR, key=key, message=message, hint=hint)


def _warning(key: str, message: str, hint: str | None = None) -> RenderNote:
    return RenderNote(severity=Severity.WARNING, key=key, message=message, hint=hint)
