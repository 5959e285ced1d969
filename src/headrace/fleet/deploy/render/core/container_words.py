"""Words that a container of docker and compose is given alike: how it is asked for its health, and its own address."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace.declaration.addresses import is_loopback, parse_listen
from headrace.declaration.model import Declaration
from headrace.declaration.model_source import FileSource
from headrace.fleet.deploy.render.core.model import GatewayWorkload, OwnAddress, Weights, Workload

PROBE_TIMEOUT_S = 5
PROBE_INTERVAL_S = 10
PROBE_FAILURES = 3
"""How often docker asks, and when it says so. Our choice: the gateway probes engines by itself, more often."""

FETCH_VARIABLES = ("HF_TOKEN", "HF_ENDPOINT", "PIP_INDEX_URL", "HTTPS_PROXY", "NO_PROXY")
"""What the fetching of weights takes from the environment of whoever starts it: a token, mirrors, a proxy."""

GATEWAY_FILE = "/etc/headrace/headrace.yaml"
"""Where the gateway finds its declaration; HEADRACE_CONFIG says so to every command that is run beside it."""
GATEWAY_MARGIN_S = 10
"""After gateway.drain_s, for the journal and the supervisor's own end."""


def health_words(port: int, path: str, client: str) -> tuple[str, ...]:
    """Return a command that succeeds where GET `path` answers 2xx or 3xx, with what the image has."""
    if client == "curl":
        return ("curl", "-fsS", "-o", "/dev/null", "-m", str(PROBE_TIMEOUT_S), f"http://127.0.0.1:{port}{path}")
    ask = (
        f'import http.client as h; c = h.HTTPConnection("127.0.0.1", {port}, timeout={PROBE_TIMEOUT_S}); '
        f'c.request("GET", "{path}"); raise SystemExit(c.getresponse().status >= 400)'
    )
    return ("python3", "-c", ask)


def gateway_health(gateway: GatewayWorkload) -> tuple[str, ...]:
    """Ask the gateway whether it lives: without ready engines it is not ready, and healthy all the same.

    With TLS the control port is asked, which speaks plain HTTP.
    """
    port = gateway.control_port if gateway.has_tls else gateway.listen_port
    return ("python", *health_words(port, gateway.health.alive, "python3")[1:])


def about_replica(workload: Workload, number: int, *, has_image: bool = False) -> str:
    """Say what a replica is and where its figures come from, for a comment above it."""
    image, key = workload.image, f"pools.{workload.pool}"
    role = f", {workload.role}" if workload.role else ""
    lines = [f"Replica {number} of pool {workload.pool}: {workload.model} on {workload.engine.value}{role}"]
    if has_image:
        lines.append(f"image: {image.origin}")
        lines.append(f"user: {image.user or 'root'} ({image.user_reason})")
    lines.append(f"drain: {workload.stop_s:g} s ({key}.stop_s)")
    lines.append(
        f"loading: about {workload.expected_load_s:.0f} s, at most {workload.load_timeout_s:g} s (load_timeout_s)"
    )
    return "\n".join([*lines, *workload.notes])


def about_gateway(gateway: GatewayWorkload) -> str:
    """Say the same of the gateway."""
    return f"The gateway.\ndrain: {gateway.drain_s:g} s (gateway.drain_s), and {GATEWAY_MARGIN_S} s to end"


def published(address: str) -> str:
    """Publish a declared HOST:PORT as it is declared, so that a loopback address stays one."""
    host, port = parse_listen(address)
    if host in ("0.0.0.0", "::"):  # noqa: S104 # compared, not bound
        return f"{port}:{port}"
    return f"127.0.0.1:{port}:{port}" if is_loopback(host) else f"{host}:{port}:{port}"


def started_words(workload: Workload) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return entry point and arguments. Variables with the container's own address are set by a shell before."""
    own = [one.name for one in workload.env if isinstance(one.value, OwnAddress)]
    if not own:
        return workload.image.command, workload.args
    settings = "; ".join(f'export {name}="$(hostname -i | cut -d " " -f 1)"' for name in own)
    return ("sh", "-c", f'{settings}; exec "$@"', "sh"), workload.argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder or file of the machine, read-only in a container."""

    host_path: str
    path: PurePosixPath
    origin: str


def weight_mounts(declaration: Declaration, workload: Workload) -> tuple[Mount, ...]:
    """Return what a workload's weights need: the model volume, and each `file:` source for itself."""
    volume = declaration.deployment.models
    mounts: dict[str, Mount] = {}
    for weights in workload.weights:
        if isinstance(weights.source, FileSource):
            host, path, origin = str(weights.source.path), weights.path, f"models.{weights.model}.source"
        else:
            host, path, origin = volume.host_dir, PurePosixPath(volume.mount_path), "deployment.models.host_dir"
        mounts.setdefault(str(path), Mount(host_path=host, path=path, origin=origin))
    return tuple(mounts.values())


def fetched_weights(workloads: tuple[Workload, ...]) -> tuple[Weights, ...]:
    """Return what must be in the model volume before engines start, each once."""
    found = {
        weights.source_text: weights
        for workload in workloads
        for weights in workload.weights
        if weights.relative_path is not None
    }
    return tuple(found.values())


def fetch_words(weights: Weights) -> tuple[str, ...]:
    """Return the command, within headrace's image, that fetches and checks weights into HEADRACE_CACHE_DIR."""
    words = ("python", "-m", "headrace.fleet.deploy.models", "--source", weights.source_text)
    return words if weights.sha256 is None else (*words, "--sha256", weights.sha256)


def whole_s(seconds: float) -> int:
    """Round up to what docker and systemd take."""
    return -(-int(seconds * 1000) // 1000)
