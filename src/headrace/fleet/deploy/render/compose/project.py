"""The project: services, network, volumes, configs and secrets, in one file that needs nothing beside it."""

from collections.abc import Iterator
from typing import cast

from headrace.fleet.deploy.render.compose.services import ServiceWriter, escaped
from headrace.fleet.deploy.render.core.container_parts import make_container_parts
from headrace.fleet.deploy.render.core.container_words import fetched_weights
from headrace.fleet.deploy.render.core.devices import assign_gpus, replica_numbers
from headrace.fleet.deploy.render.core.model import (
    GatewayWorkload,
    Rendered,
    RenderedFile,
    RenderRequest,
)
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.rendering import (
    Engines,
)
from headrace.fleet.deploy.render.core.yaml_text import Noted, yaml_text

FILE_NAME = "compose.yaml"
HEAD = (
    "Made by `headrace render compose`: change the declaration and render again.",
    "Engines have no authentication: only the gateway's port is published.",
    "docker compose up --detach    starts, and replaces at once all that changed; each container drains first",
    "To replace one after the other, images first, and stop at the first that does not become healthy:",
)


def render_compose(request: RenderRequest) -> Rendered:
    """Write the project, or say why not."""
    parts = make_container_parts(request)
    if parts.has_errors:
        return Rendered(files=(), notes=parts.notes)
    project = _project(request, parts.engines, parts.gateway)
    text = yaml_text(project, head=(*HEAD, *_one_by_one(project)))
    return Rendered(files=(RenderedFile(path=FILE_NAME, text=text),), notes=parts.notes)


def _one_by_one(project: dict[str, object]) -> list[str]:
    """Images and weights first, while everything still runs, then one service after the other."""
    names = list(cast("dict[str, object]", project["services"]))
    fetching = [name for name in names if name.startswith("fetch-")]
    replaced = " ".join(name for name in names if name not in fetching)
    return [
        "docker compose pull --ignore-pull-failures",
        *([f"docker compose up {' '.join(fetching)}"] if fetching else []),
        f"for one in {replaced}; do docker compose up --detach --no-deps --wait $one || break; done",
    ]


def _project(request: RenderRequest, engines: Engines, gateway: GatewayWorkload | None) -> dict[str, object]:
    declaration = request.declaration
    deployment = declaration.deployment
    writer = ServiceWriter(declaration=declaration, gpus=assign_gpus(engines.workloads))
    fetched = fetched_weights(engines.workloads)
    services: dict[str, object] = {}
    for number, weights in enumerate(fetched):
        services[f"fetch-{number}"] = writer.fetch(weights)
    for workload in engines.workloads:
        for number in replica_numbers(workload):
            name = f"{object_name(workload.pool)}-{number}"
            services[name] = writer.engine(workload, number, fetched)
    if gateway is not None:
        services |= writer.stores()
        engines_names = [name for name in services if not name.startswith("fetch-") and name not in STORES]
        services["gateway"] = writer.gateway(gateway, engines_names)
    project: dict[str, object] = {
        "name": Noted(deployment.namespace, "deployment.namespace"),
        "services": services,
        "networks": {
            "default": Noted({"name": deployment.namespace}, "Shared by the engines and the gateway alone."),
        },
    }
    if volumes := dict(_volumes(request, gateway)):
        project["volumes"] = volumes
    if configs := dict(_configs(engines, gateway)):
        project["configs"] = configs
    if gateway is not None and gateway.secret_files:
        note = "Files that the declaration names; the gateway's user must be able to read them."
        secrets = {file.name: Noted({"file": escaped(file.host_path)}, file.origin) for file in gateway.secret_files}
        project["secrets"] = Noted(secrets, note)
    return project


STORES = ("postgres", "redis")


def _volumes(request: RenderRequest, gateway: GatewayWorkload | None) -> Iterator[tuple[str, object]]:
    if gateway is None:
        return
    yield "state", Noted({}, "Journal, ledger and keys of the gateway: back it up.")
    for name in STORES:
        if getattr(request.declaration.deployment, name) is not None:
            yield name, {}


def _configs(engines: Engines, gateway: GatewayWorkload | None) -> Iterator[tuple[str, object]]:
    for workload in engines.workloads:
        for file in workload.files:
            yield f"{object_name(workload.pool)}-{object_name(file.name)}", {"content": escaped(file.text)}
    if gateway is not None:
        yield "gateway", {"content": escaped(gateway.declaration_text)}
