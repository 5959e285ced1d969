"""The script: network, files, weights, services, engines, gateway, in the order in which they must be there."""

from collections.abc import Iterator

from headrace.fleet.deploy.render.core.container_parts import make_container_parts
from headrace.fleet.deploy.render.core.container_words import fetched_weights
from headrace.fleet.deploy.render.core.devices import assign_gpus, replica_numbers
from headrace.fleet.deploy.render.core.model import (
    GatewayWorkload,
    Rendered,
    RenderedFile,
    RenderRequest,
    SecretVariable,
)
from headrace.fleet.deploy.render.core.rendering import (
    POSTGRES_PASSWORD,
    Engines,
)
from headrace.fleet.deploy.render.docker.run_lines import Runner
from headrace.fleet.deploy.render.docker.shell_words import quoted

FILE_NAME = "headrace-docker.sh"

FUNCTIONS = """\
replacing=
fresh=

is_there() { docker container inspect "$1" >/dev/null 2>&1; }

# Fetches an image before anything is stopped; one that no registry answers for must be on this machine.
pull() {
  docker pull --quiet "$1" >/dev/null 2>&1 || docker image inspect "$1" >/dev/null 2>&1 || {
    echo "image $1 can neither be pulled nor found here: nothing was replaced" >&2
    exit 1
  }
}

# Ends a container if it is there: SIGTERM, its drain bound in seconds, then SIGKILL. It is kept, stopped, as
# NAME-before until its successor is healthy. One that an earlier run left unproven is not kept.
set_aside() {
  replacing=$1
  is_there "$1" || return 0
  docker stop -t "$2" "$1" >/dev/null
  if is_there "$1-before"; then
    docker rm "$1" >/dev/null
  else
    docker rename "$1" "$1-before"
  fi
}

# Where there was one before, waits for the fresh container before the next one is touched, and some seconds more, in
# which the gateway learns of it. Those without a predecessor load side by side: they are waited for at the end.
started() {
  if is_there "$1-before"; then
    await_healthy "$1" "$2"
    docker rm "$1-before" >/dev/null
    sleep "$3"
  else
    fresh="$fresh $1 $2"
  fi
  replacing=
}

# Waits until a container is healthy, NAME SECONDS; ends the script where it is not in time, or dies again and again.
await_healthy() {
  left=$2
  while :; do
    state=$(docker container inspect --format '{{.State.Health.Status}} {{.RestartCount}}' "$1")
    case "$state" in
      "healthy "*) return 0 ;;
      "starting "[0-2]) ;;
      *) break ;;
    esac
    [ "$left" -gt 0 ] || break
    sleep 2
    left=$((left - 2))
  done
  echo "$1 does not become healthy (health, restarts: $state); what it said last:" >&2
  docker logs --tail 20 "$1" >&2 || true
  exit 1
}

# At the end, however it comes: what was set aside and has no healthy successor runs again.
go_back() {
  status=$?
  trap - EXIT
  if [ -n "$replacing" ]; then
    if is_there "$replacing-before"; then
      if is_there "$replacing"; then docker rm --force "$replacing" >/dev/null; fi
      docker rename "$replacing-before" "$replacing"
      echo "$replacing goes back to what it was; what comes after it was not touched" >&2
    fi
    if is_there "$replacing"; then docker start "$replacing" >/dev/null; fi
  fi
  exit "$status"
}
trap go_back EXIT
trap 'exit 130' INT TERM
"""

AWAIT_FRESH = """\
# Those that had no predecessor.
set -- $fresh
while [ $# -gt 0 ]; do
  await_healthy "$1" "$2"
  shift 2
done"""


def render_docker(request: RenderRequest) -> Rendered:
    """Write the script, or say why not."""
    parts = make_container_parts(request)
    if parts.has_errors:
        return Rendered(files=(), notes=parts.notes)
    text = "\n".join(_script(request, parts.engines, parts.gateway)) + "\n"
    return Rendered(files=(RenderedFile(path=FILE_NAME, text=text, is_executable=True),), notes=parts.notes)


def _script(request: RenderRequest, engines: Engines, gateway: GatewayWorkload | None) -> Iterator[str]:
    declaration = request.declaration
    runner = Runner(declaration=declaration, gpus=assign_gpus(engines.workloads))
    namespace = declaration.deployment.namespace
    yield "#!/bin/sh"
    yield "# Made by `headrace render docker`: change the declaration and render again."
    yield "# Run it again to replace what runs, one container after the other: each drains first, its successor must be"
    yield "# healthy before the next one is touched, and the first that is not is taken back. Engines have no"
    yield "# authentication: only the gateway's port is published, and they share a network with the gateway alone."
    yield "set -eu"
    yield ""
    yield "# Files that containers read are written below this folder."
    yield f'files="${{HEADRACE_FILES:-/etc/{namespace}}}"'
    for variable in _secrets(request, engines, gateway):
        yield f': "${{{variable}:?is a secret that the declaration names: set it}}"'
    yield ""
    yield from FUNCTIONS.splitlines()
    yield ""
    yield from (f"pull {quoted(image)}" for image in runner.images(engines.workloads, gateway))
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
    yield ""
    yield AWAIT_FRESH


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
