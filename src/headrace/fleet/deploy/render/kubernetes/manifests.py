"""`headrace render kubernetes`: which objects there are, in the order in which they are written."""

from collections.abc import Iterator, Sequence

from headrace.declaration.addresses import is_loopback, parse_listen
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.gateway_declaration import Reach
from headrace.fleet.deploy.render.core.model import (
    GatewayWorkload,
    Rendered,
    RenderedFile,
    RenderNote,
    RenderRequest,
    Severity,
    Workload,
)
from headrace.fleet.deploy.render.core.rendering import database_url, make_engines, make_gateway
from headrace.fleet.deploy.render.core.site import container_site
from headrace.fleet.deploy.render.core.yaml_text import yaml_text
from headrace.fleet.deploy.render.kubernetes.controllers import controllers_of, start_bound_s
from headrace.fleet.deploy.render.kubernetes.gateway_objects import gateway_objects
from headrace.fleet.deploy.render.kubernetes.kustomize import environment_notes, kustomize_files
from headrace.fleet.deploy.render.kubernetes.objects import Cluster, KubeObject
from headrace.fleet.deploy.render.kubernetes.probes import with_grace
from headrace.fleet.deploy.render.kubernetes.refusals import (
    cluster_notes,
    has_database,
    object_notes,
    workload_notes,
)
from headrace.fleet.deploy.render.kubernetes.scaling import scaler_of
from headrace.fleet.deploy.render.kubernetes.services import companions_of, pods_service
from headrace.fleet.deploy.render.kubernetes.shared_objects import shared_objects, store_objects
from headrace.fleet.deploy.render.kubernetes.tensorrt_build import build_objects, serving_node, tensorrt_notes
from headrace.fleet.deploy.render.kubernetes.triton import SERVED_MODEL, by_triton, is_triton

BASE = "base"
LEAST_START_S = 600
"""Where all engines run elsewhere. Kubernetes' own default."""
MADE_BY = "Made by `headrace render kubernetes`: change the declaration and render again."


def render_kubernetes(request: RenderRequest) -> Rendered:
    """Write all objects, and for --split kustomize's base and overlays, or say why not."""
    declaration = with_grace(request.declaration)
    site = container_site(declaration)
    cluster = Cluster(declaration=declaration, namespace=declaration.deployment.namespace)
    engines = make_engines(declaration, site, pool=request.pool)
    notes = list(engines.notes)
    if not engines.errors:
        notes += cluster_notes(cluster, engines.workloads, has_gateway=request.pool is None)
        notes += (note for workload in engines.workloads for note in workload_notes(cluster, workload))
        notes += (note for workload in engines.workloads for note in tensorrt_notes(cluster, workload))
        notes += environment_notes(cluster, engines.workloads, has_database=has_database(declaration))
    if _has_error(notes):
        return Rendered(files=(), notes=tuple(notes))
    gateway = _gateway(cluster, request.folder, engines.workloads) if request.pool is None else None
    objects = list(all_objects(cluster, engines.workloads, gateway))
    notes += object_notes(objects)
    if _has_error(notes):
        return Rendered(files=(), notes=tuple(notes))
    files = (*object_files(objects), *kustomize_files(cluster, engines.workloads, objects, base=BASE))
    return Rendered(files=files, notes=tuple(notes))


def _has_error(notes: Sequence[RenderNote]) -> bool:
    return any(note.severity is Severity.ERROR for note in notes)


def _gateway(cluster: Cluster, folder: str, workloads: Sequence[Workload]) -> GatewayWorkload:
    declaration = cluster.declaration
    host, port = parse_listen(declaration.gateway.control)
    reaches = {workload.pool: _reach(cluster, workload) for workload in workloads}
    return make_gateway(
        declaration,
        reaches,
        container_site(declaration),
        folder=folder,
        control=f"0.0.0.0:{port}" if is_loopback(host) else None,
        database=database_url(declaration, host="postgres"),
    )


def _reach(cluster: Cluster, workload: Workload) -> Reach:
    url = f"http://{pods_service(workload)}:{workload.http_port}"
    if is_triton(cluster, workload):
        return Reach(endpoints=(url,), by_dns=True, engine=EngineKind.OPENAI, served_model=SERVED_MODEL)
    return Reach(endpoints=(url,), by_dns=True)


def all_objects(
    cluster: Cluster, workloads: Sequence[Workload], gateway: GatewayWorkload | None
) -> Iterator[KubeObject]:
    """Yield every object."""
    yield from shared_objects(cluster, workloads, has_gateway=gateway is not None)
    for workload in workloads:
        yield from build_objects(cluster, workload)
        shown = by_triton(cluster, workload)
        yield from controllers_of(cluster, shown, serving_node(cluster, workload))
        yield from companions_of(cluster, shown)
        yield from scaler_of(cluster, shown)
    if gateway is not None:
        yield from store_objects(cluster)
        ready_s = max((start_bound_s(cluster, workload) for workload in workloads), default=LEAST_START_S)
        keeps_state = not has_database(cluster.declaration)
        yield from gateway_objects(cluster, gateway, keeps_state=keeps_state, ready_s=ready_s)


def object_files(objects: Sequence[KubeObject]) -> Iterator[RenderedFile]:
    """Write the objects, a file for each part of the whole."""
    texts: dict[str, list[str]] = {}
    for one in objects:
        texts.setdefault(one.file, []).append(yaml_text(one.tree, head=one.about.splitlines()))
    for name, documents in texts.items():
        yield RenderedFile(path=f"{BASE}/{name}", text=f"# {MADE_BY}\n" + "---\n".join(documents))
