"""One `docker run` line for each container, with a comment for each thing that came from the declaration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace import __version__
from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.container_words import (
    FETCH_VARIABLES,
    GATEWAY_FILE,
    GATEWAY_MARGIN_S,
    PROBE_FAILURES,
    PROBE_INTERVAL_S,
    PROBE_TIMEOUT_S,
    about_gateway,
    about_replica,
    fetch_words,
    gateway_health,
    health_words,
    published,
    started_words,
    weight_mounts,
    whole_s,
)
from headrace.fleet.deploy.render.core.devices import without_visible
from headrace.fleet.deploy.render.core.model import (
    GatewayWorkload,
    OwnAddress,
    SecretVariable,
    TextFile,
    Weights,
    Workload,
)
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.rendering import POSTGRES_PASSWORD
from headrace.fleet.deploy.render.docker.shell_words import (
    Raw,
    broken_at_flags,
    command,
    comment,
    here_document,
    mark_of,
    quoted,
)

UNPRIVILEGED = (("--security-opt", "no-new-privileges"), ("--cap-drop", "ALL"))
LOGS = (("--log-opt", "max-size=50m", "--log-opt", "max-file=5"),)
START_S = 60
"""In which a gateway, a database or a Redis is expected to answer. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Writes the lines of one script."""

    declaration: Declaration
    gpus: Mapping[tuple[str, int], tuple[str, ...]]

    @property
    def _namespace(self) -> str:
        return self.declaration.deployment.namespace

    def network(self) -> Iterator[str]:
        name = quoted(self._namespace)
        yield f"docker network inspect {name} >/dev/null 2>&1 || docker network create {name} >/dev/null"

    def images(self, workloads: Sequence[Workload], gateway: GatewayWorkload | None) -> list[str]:
        """Every image that is run, each once."""
        deployment = self.declaration.deployment
        found = [workload.image.reference for workload in workloads]
        if any(workload.weights for workload in workloads):
            found.append(self._own_image)
        if gateway is not None:
            stores = (deployment.postgres, deployment.redis)
            found += [gateway.image, *(store.image for store in stores if store is not None)]
        return list(dict.fromkeys(found))

    @property
    def _own_image(self) -> str:
        return self.declaration.deployment.gateway.image or f"headrace:{__version__}"

    def fetch(self, weights: Weights) -> Iterator[str]:
        """The weights, once, into the folder that engines see read-only."""
        volume = self.declaration.deployment.models
        yield from comment(
            f"Weights of {weights.model} (models.{weights.model}.source): fetched once, resumed, checked."
        )
        yield f"mkdir -p {quoted(volume.host_dir)}"
        yield command(
            [
                ["docker", "run", "--rm"],
                ["--name", f"{self._namespace}-fetch"],
                ["--user", Raw('"$(id -u):$(id -g)"')],
                ["--volume", f"{volume.host_dir}:{volume.mount_path}"],
                ["--env", f"HEADRACE_CACHE_DIR={volume.mount_path}"],
                [word for name in FETCH_VARIABLES for word in ("--env", name)],
                ["--entrypoint", fetch_words(weights)[0]],
                [self._own_image, *fetch_words(weights)[1:]],
            ]
        )

    def services(self) -> Iterator[str]:
        """Redis and PostgreSQL, where they are declared."""
        deployment = self.declaration.deployment
        if deployment.postgres is not None:
            yield ""
            yield from comment("PostgreSQL for the ledger (deployment.postgres).")
            yield f'export POSTGRES_PASSWORD="${POSTGRES_PASSWORD}"'
            yield from self._service(
                "postgres",
                deployment.postgres.image,
                ["--env", "POSTGRES_PASSWORD", "--env", "POSTGRES_USER=headrace", "--env", "POSTGRES_DB=headrace"],
                ["--volume", f"{self._namespace}-postgres:/var/lib/postgresql"],
                ["--health-cmd", "pg_isready --username headrace"],
            )
        if deployment.redis is not None:
            yield ""
            yield from comment("Redis for limits that gateways share (deployment.redis).")
            yield from self._service(
                "redis",
                deployment.redis.image,
                ["--volume", f"{self._namespace}-redis:/data"],
                ["--health-cmd", "redis-cli ping"],
            )

    def _service(self, name: str, image: str, *options: list[str]) -> Iterator[str]:
        container = f"{self._namespace}-{name}"
        yield f"set_aside {quoted(container)} 30"
        yield command(
            [
                *self._start(container, name, stop_s=30),
                ["--security-opt", "no-new-privileges"],
                *options,
                ["--health-interval", f"{PROBE_INTERVAL_S}s"],
                [image],
            ]
        )
        yield _started(container, START_S, 0)

    def engine(self, workload: Workload, number: int) -> Iterator[str]:
        """One replica."""
        host = f"{object_name(workload.pool)}-{number}"
        container = f"{self._namespace}-{host}"
        stop_s = whole_s(workload.stop_s)
        yield from comment(about_replica(workload, number, has_image=True))
        for file in workload.files:
            yield from here_document("files", _launch_path(workload, file), file.text)
        yield f"set_aside {quoted(container)} {stop_s}"
        entry, arguments = started_words(workload)
        yield command(
            [
                *_secrets(workload),
                *self._start(container, host, stop_s=stop_s),
                *self._devices(workload, number),
                *self._rights(workload),
                *([["--tmpfs", f"{path}:mode=1777"] for path in workload.scratch_dirs]),
                *(
                    ["--volume", f"{mount.host_path}:{mount.path}:ro"]
                    for mount in weight_mounts(self.declaration, workload)
                ),
                *(
                    ["--volume", Raw(f'"$files"/{quoted(f"{_launch_path(workload, file)}:{file.path}:ro")}')]
                    for file in workload.files
                ),
                *self._env(workload),
                *_health(
                    health_words(workload.http_port, workload.health.ready, workload.image.http_client),
                    start_s=whole_s(workload.load_timeout_s),
                ),
                ["--entrypoint", entry[0]],
                [workload.image.reference, *entry[1:]],
                *broken_at_flags(arguments),
            ]
        )
        yield _started(container, whole_s(workload.load_timeout_s), self._notice_s(workload.pool))

    def _notice_s(self, pool: str) -> int:
        """In which the gateway has asked a fresh engine twice."""
        return whole_s(2 * self.declaration.pools[pool].probe.interval_s) + 1

    def _start(self, container: str, host: str, *, stop_s: int) -> list[list[str]]:
        return [
            ["docker", "run", "--detach", "--init"],
            ["--name", container],
            ["--network", self._namespace, "--network-alias", host],
            ["--restart", "unless-stopped"],
            ["--stop-timeout", str(stop_s)],
            *map(list, LOGS),
        ]

    def _devices(self, workload: Workload, number: int) -> Iterator[list[str]]:
        if ids := self.gpus[workload.pool, number]:
            yield ["--gpus", f'"device={",".join(ids)}"']
            yield ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
        if workload.shm_bytes is None:
            yield ["--ipc", "host"]
        else:
            yield ["--shm-size", str(workload.shm_bytes)]

    def _rights(self, workload: Workload) -> Iterator[list[str]]:
        if workload.image.user is None:
            yield ["--security-opt", "no-new-privileges"]
            return
        yield ["--user", workload.image.user]
        yield from map(list, UNPRIVILEGED)

    def _env(self, workload: Workload) -> Iterator[list[str]]:
        env = without_visible(workload.env) if workload.gpus else workload.env
        for one in env:
            if isinstance(one.value, SecretVariable):
                yield ["--env", one.name]
            elif not isinstance(one.value, OwnAddress):
                yield ["--env", f"{one.name}={one.value}"]

    def gateway(self, gateway: GatewayWorkload) -> Iterator[str]:
        """The gateway, last: it sends requests to engines as they become ready."""
        container, stop_s = f"{self._namespace}-gateway", whole_s(gateway.drain_s) + GATEWAY_MARGIN_S
        yield from comment(f"{about_gateway(gateway)}\nimage: {gateway.image_origin}")
        path = PurePosixPath("gateway") / mark_of(gateway.declaration_text) / "headrace.yaml"
        yield from here_document("files", path, gateway.declaration_text)
        yield f"set_aside {quoted(container)} {stop_s}"
        yield command(
            [
                *self._start(container, "gateway", stop_s=stop_s),
                ["--user", gateway.user],
                *map(list, UNPRIVILEGED),
                ["--read-only", "--tmpfs", "/tmp"],  # noqa: S108 # the container's own
                ["--publish", published(self.declaration.gateway.listen)],
                *([["--publish", published(self.declaration.gateway.control)]] if gateway.is_control_open else []),
                ["--volume", f"{self._namespace}-state:{gateway.state_dir}"],
                ["--volume", Raw(f'"$files"/{path}:{GATEWAY_FILE}:ro')],
                *(["--volume", f"{file.host_path}:{file.path}:ro"] for file in gateway.secret_files),
                ["--env", f"HEADRACE_STATE_DIR={gateway.state_dir}"],
                ["--env", f"HEADRACE_CONFIG={GATEWAY_FILE}"],
                *(["--env", name] for name in gateway.secret_variables),
                *_health(gateway_health(gateway), start_s=START_S),
                ["--entrypoint", "headrace"],
                [gateway.image, "up"],
            ]
        )
        yield _started(container, START_S, 0)


def _launch_path(workload: Workload, file: TextFile) -> PurePosixPath:
    """Named after its content too, so that a container that is taken back has the file it was started with."""
    return PurePosixPath("launch") / workload.pool / mark_of(file.text) / file.name


def _started(container: str, start_s: int, notice_s: int) -> str:
    """Wait for a container: as long as it may take to start, and until docker has asked often enough to say no."""
    return f"started {quoted(container)} {start_s + PROBE_FAILURES * (PROBE_INTERVAL_S + PROBE_TIMEOUT_S)} {notice_s}"


def _secrets(workload: Workload) -> list[list[str]]:
    """Put secrets before the command, where no list of processes shows them."""
    secrets = [(one.name, one.value.variable) for one in workload.env if isinstance(one.value, SecretVariable)]
    return [[Raw(f'{name}="${variable}"') for name, variable in secrets]] if secrets else []


def _health(words: tuple[str, ...], *, start_s: int) -> list[list[str]]:
    return [
        ["--health-cmd", " ".join(map(quoted, words))],
        ["--health-interval", f"{PROBE_INTERVAL_S}s", "--health-timeout", f"{PROBE_TIMEOUT_S + 1}s"],
        ["--health-start-period", f"{start_s}s", "--health-retries", str(PROBE_FAILURES)],
    ]
