"""All files of a machine: units, launch files, templates for secrets, the gateway's declaration."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from headrace.fleet.deploy.render.core.container_words import fetched_weights
from headrace.fleet.deploy.render.core.devices import assign_gpus, machine_notes
from headrace.fleet.deploy.render.core.model import (
    GatewayWorkload,
    Rendered,
    RenderedFile,
    RenderNote,
    RenderRequest,
    SecretVariable,
    Severity,
    Workload,
)
from headrace.fleet.deploy.render.core.object_names import name_notes, object_name
from headrace.fleet.deploy.render.core.rendering import Engines, make_engines, make_gateway, reaches_of
from headrace.fleet.deploy.render.core.site import host_site
from headrace.fleet.deploy.render.systemd.engine_unit import engine_unit
from headrace.fleet.deploy.render.systemd.own_units import fetch_unit, gateway_unit, target_unit
from headrace.fleet.deploy.render.systemd.unit_names import UnitNames

UNIT_DIR = "etc/systemd/system"
EXAMPLE = ".example"
"""How a template for secrets ends."""


def render_systemd(request: RenderRequest) -> Rendered:
    """Write the files, or say why not."""
    declaration = request.declaration
    engines = make_engines(declaration, host_site(declaration), pool=request.pool)
    notes = (
        *engines.notes,
        *name_notes(declaration),
        *machine_notes(engines.workloads),
        *_store_notes(request),
        *_port_notes(engines.workloads),
    )
    if any(note.severity is Severity.ERROR for note in notes):
        return Rendered(files=(), notes=notes)
    gateway = None
    if request.pool is None:
        gateway = make_gateway(
            declaration,
            reaches_of(engines.workloads, lambda workload: (f"http://127.0.0.1:{workload.http_port}",)),
            host_site(declaration),
            folder=request.folder,
            secret_dir=UnitNames(namespace=declaration.deployment.namespace).credentials,
        )
    return Rendered(files=tuple(_files(request, engines, gateway)), notes=notes)


def _files(request: RenderRequest, engines: Engines, gateway: GatewayWorkload | None) -> Iterator[RenderedFile]:
    """The target, which needs to know the others, first."""
    names = UnitNames(namespace=request.declaration.deployment.namespace)
    others = tuple(_others(request, names, engines, gateway))
    order = [PurePosixPath(file.path).name for file in others if file.path.startswith(UNIT_DIR)]
    has_secrets = any(file.path.endswith(EXAMPLE) for file in others)
    yield _unit(names.target, target_unit(names, order, has_secrets=has_secrets))
    yield from others


def _others(
    request: RenderRequest, names: UnitNames, engines: Engines, gateway: GatewayWorkload | None
) -> Iterator[RenderedFile]:
    declaration = request.declaration
    gpus = assign_gpus(engines.workloads)
    fetched = fetched_weights(engines.workloads)
    if fetched:
        yield _unit(names.fetch, fetch_unit(declaration, names, fetched))
    for workload in engines.workloads:
        text = engine_unit(declaration, names, workload, gpus[workload.pool, workload.number])
        yield _unit(names.engine(workload), text)
        yield from _engine_files(names, workload)
    if gateway is not None:
        yield _unit(names.gateway, gateway_unit(declaration, names, gateway))
        yield RenderedFile(path=f"{names.config_dir}/headrace.yaml".lstrip("/"), text=gateway.declaration_text)
        if gateway.secret_variables:
            yield _secrets(f"{names.config_dir}/gateway.env", {name: name for name in gateway.secret_variables})


def _unit(name: str, text: str) -> RenderedFile:
    return RenderedFile(path=f"{UNIT_DIR}/{name}", text=text)


def _engine_files(names: UnitNames, workload: Workload) -> Iterator[RenderedFile]:
    for file in workload.files:
        yield RenderedFile(path=str(file.path).lstrip("/"), text=file.text)
    secrets = {one.name: one.value.variable for one in workload.env if isinstance(one.value, SecretVariable)}
    if secrets:
        yield _secrets(names.secrets(workload), secrets)


def _secrets(path: str, variables: dict[str, str]) -> RenderedFile:
    """A template: what is filled in stays on the machine, and is read by root alone."""
    lines = [
        f"# Copy to /{path.lstrip('/')}, mode 0600, owner root, and fill in. Made by `headrace render systemd`.",
    ]
    for name, variable in sorted(variables.items()):
        lines += [f"# the declaration's ${{env:{variable}}}", f"{name}="]
    return RenderedFile(path=f"{path.lstrip('/')}{EXAMPLE}", text="\n".join(lines) + "\n")


def _store_notes(request: RenderRequest) -> Iterator[RenderNote]:
    for name in ("redis", "postgres"):
        if getattr(request.declaration.deployment, name) is not None:
            yield RenderNote(
                severity=Severity.WARNING,
                key=f"deployment.{name}",
                message="is not rendered for systemd: use the distribution's own package",
                hint="Name it in ledger.database" if name == "postgres" else None,
            )


def _port_notes(workloads: tuple[Workload, ...]) -> Iterator[RenderNote]:
    users: dict[int, str] = {}
    for workload in workloads:
        for port in workload.ports:
            owner = f"{object_name(workload.pool)}-{workload.number}"
            if port.number in users:
                yield RenderNote(
                    severity=Severity.ERROR,
                    key=f"pools.{workload.pool}.port",
                    message=f"needs {port.number} ({port.name}), which {users[port.number]} has",
                    hint="Give each pool a port of its own",
                )
            users[port.number] = owner
