"""The script: network, files, weights, services, engines, gateway, in the order in which they must be there."""

from collections.abc import Iterator

from headrace.fleet.deploy.render.core.container_words import fetched_weights
from headrace.fleet.deploy.render.core.devices import assign_gpus, machine_notes, replica_numbers
from headrace.fleet.deploy.render.core.gateway_notes import gateway_notes
from headrace.fleet.deploy.render.core.model import (
    GatewayWorkload,
    Rendered,
    RenderedFile,
    RenderRequest,
    SecretVariable,
    Severity,
    Workload,
)
from headrace.fleet.deploy.render.core.object_names import name_notes, object_name
from headrace.fleet.deploy.render.core.rendering import (
    POSTGRES_PASSWORD,
    Engines,
    database_url,
    make_engines,
    make_gateway,
    reaches_of,
)
from headrace.fleet.deploy.render.core.site import container_site
from headrace.fleet.deploy.render.docker.run_lines import Runner

FILE_NAME = "headrace-docker.sh"

FUNCTIONS = """\
# Ends a container if it is there: SIGTERM, its drain bound in seconds, then SIGKILL.
replace() {
  if docker container inspect "$1" >/dev/null 2>&1; then
    docker stop -t "$2" "$1" >/dev/null
    docker rm "$1" >/dev/null
  fi
}
"""


def render_docker(request: RenderRequest) -> Rendered:
    """Write the script, or say why not."""
    declaration = request.declaration
    site = container_site(declaration)
    engines = make_engines(declaration, site, pool=request.pool)
    notes = (
        *engines.notes,
        *name_notes(declaration),
        *machine_notes(engines.workloads),
        *(gateway_notes(declaration, site) if request.pool is None else ()),
    )
    if any(note.severity is Severity.ERROR for note in notes):
        return Rendered(files=(), notes=notes)
    gateway = None
    if request.pool is None:
        gateway = make_gateway(
            declaration,
            reaches_of(engines.workloads, _urls),
            site,
            folder=request.folder,
            database=database_url(declaration, host="postgres"),
        )
    text = "\n".join(_script(request, engines, gateway)) + "\n"
    return Rendered(files=(RenderedFile(path=FILE_NAME, text=text, is_executable=True),), notes=notes)


def _urls(workload: Workload) -> tuple[str, ...]:
    return tuple(
        f"http://{object_name(workload.pool)}-{number}:{workload.http_port}" for number in replica_numbers(workload)
    )


def _script(request: RenderRequest, engines: Engines, gateway: GatewayWorkload | None) -> Iterator[str]:
    declaration = request.declaration
    runner = Runner(declaration=declaration, gpus=assign_gpus(engines.workloads))
    namespace = declaration.deployment.namespace
    yield "#!/bin/sh"
    yield "# Made by `headrace render docker`: change the declaration and render again."
    yield "# Run it again to replace what runs: each container drains first. Engines have no authentication: only the"
    yield "# gateway's port is published, and they share a network with the gateway alone."
    yield "set -eu"
    yield ""
    yield "# Files that containers read are written below this folder."
    yield f'files="${{HEADRACE_FILES:-/etc/{namespace}}}"'
    for variable in _secrets(request, engines, gateway):
        yield f': "${{{variable}:?is a secret that the declaration names: set it}}"'
    yield ""
    yield from FUNCTIONS.splitlines()
    yield ""
    yield from runner.network()
    for weights in fetched_weights(engines.workloads):
        yield ""
        yield from runner.fetch(weights)
    if gateway is not None:
        yield from runner.services()
    for workload in engines.workloads:
        for number in replica_numbers(workload):
            yield ""
            yield from runner.engine(workload, number)
    if gateway is not None:
        yield ""
        yield from runner.gateway(gateway)


def _secrets(request: RenderRequest, engines: Engines, gateway: GatewayWorkload | None) -> list[str]:
    found = {
        one.value.variable
        for workload in engines.workloads
        for one in workload.env
        if isinstance(one.value, SecretVariable)
    }
    if gateway is not None:
        found |= set(gateway.secret_variables)
        if request.declaration.deployment.postgres is not None:
            found.add(POSTGRES_PASSWORD)
    return sorted(found)
