"""What docker and compose are both made of: engines that are found by name, the gateway, and all notes."""

from dataclasses import dataclass

from headrace.fleet.deploy.render.core.devices import machine_notes, replica_numbers
from headrace.fleet.deploy.render.core.gateway_notes import gateway_notes
from headrace.fleet.deploy.render.core.model import GatewayWorkload, RenderNote, RenderRequest, Severity, Workload
from headrace.fleet.deploy.render.core.object_names import name_notes, object_name
from headrace.fleet.deploy.render.core.rendering import Engines, database_url, make_engines, make_gateway, reaches_of
from headrace.fleet.deploy.render.core.site import container_site


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerParts:
    """The parts of one machine's containers; only notes where one of them is an error."""

    engines: Engines
    gateway: GatewayWorkload | None
    """None: a single pool is rendered, or nothing is."""
    notes: tuple[RenderNote, ...]

    @property
    def has_errors(self) -> bool:
        return any(note.severity is Severity.ERROR for note in self.notes)


def make_container_parts(request: RenderRequest) -> ContainerParts:
    """Make workloads of the declaration, or say why not."""
    declaration = request.declaration
    site = container_site(declaration)
    engines = make_engines(declaration, site, pool=request.pool)
    notes = (
        *engines.notes,
        *name_notes(declaration),
        *machine_notes(engines.workloads),
        *(gateway_notes(declaration, site) if request.pool is None else ()),
    )
    parts = ContainerParts(engines=engines, gateway=None, notes=notes)
    if parts.has_errors or request.pool is not None:
        return parts
    gateway = make_gateway(
        declaration,
        reaches_of(engines.workloads, _urls),
        site,
        folder=request.folder,
        database=database_url(declaration, host="postgres"),
    )
    return ContainerParts(engines=engines, gateway=gateway, notes=notes)


def _urls(workload: Workload) -> tuple[str, ...]:
    return tuple(
        f"http://{object_name(workload.pool)}-{number}:{workload.http_port}" for number in replica_numbers(workload)
    )
