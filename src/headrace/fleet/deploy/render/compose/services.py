"""One service for each container, with a comment for each thing that came from the declaration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace import __version__
from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.container_words import (
    FETCH_VARIABLES,
    GATEWAY_FILE,
    GATEWAY_MARGIN_S,
    PROBE_FAILURES,
    PROBE_INTERVAL_S,
    PROBE_TIMEOUT_S,
    Mount,
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
from headrace.fleet.deploy.render.core.model import GatewayWorkload, OwnAddress, SecretVariable, Weights, Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.rendering import POSTGRES_PASSWORD
from headrace.fleet.deploy.render.core.yaml_text import Noted

NO_NEW_RIGHTS = {"security_opt": ["no-new-privileges:true"]}
LOGGING = {"logging": {"driver": "json-file", "options": {"max-size": "50m", "max-file": "5"}}}
STORE_STOP_S = 30
"""For Redis and PostgreSQL to write what they hold."""


def escaped(text: str) -> str:
    """Keep compose from expanding what is not its own."""
    return text.replace("$", "$$")


def required(variable: str) -> str:
    """Refer to a secret of the environment in which compose runs; without it nothing starts."""
    return f"${{{variable}:?is a secret that the declaration names}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWriter:
    """Writes the services of one project."""

    declaration: Declaration
    gpus: Mapping[tuple[str, int], tuple[str, ...]]

    def fetch(self, weights: Weights) -> object:
        """Weights, once, into the folder that engines see read-only."""
        volume = self.declaration.deployment.models
        service: dict[str, object] = {
            "image": self.declaration.deployment.gateway.image or f"headrace:{__version__}",
            "entrypoint": _words(fetch_words(weights)),
            "user": Noted("0:0", "Writes into deployment.models.host_dir, which engines see read-only."),
            "environment": {
                "HEADRACE_CACHE_DIR": volume.mount_path,
                **{name: f"${{{name}:-}}" for name in FETCH_VARIABLES},
            },
            "volumes": [{"type": "bind", "source": volume.host_dir, "target": volume.mount_path}],
            "restart": "on-failure:3",
            **NO_NEW_RIGHTS,
            **LOGGING,
        }
        return Noted(service, f"Weights of {weights.model} (models.{weights.model}.source): fetched once, checked.")

    def engine(self, workload: Workload, number: int, fetched: Sequence[Weights]) -> object:
        """One replica."""
        entry, arguments = started_words(workload)
        needed = [f"fetch-{index}" for index, one in enumerate(fetched) if self._reads(workload, one)]
        service: dict[str, object] = {
            "image": Noted(workload.image.reference, workload.image.origin),
            "entrypoint": _words(entry),
            "command": _words(arguments),
            **self._rights(workload),
            **self._shared_memory(workload),
            **self._devices(workload, number),
            **self._environment(workload),
            "volumes": [_bind(mount) for mount in weight_mounts(self.declaration, workload)],
            **_if_any("tmpfs", [f"{path}:mode=1777" for path in workload.scratch_dirs]),
            **_if_any("configs", [self._config(workload, file.name, str(file.path)) for file in workload.files]),
            **_if_any("depends_on", {name: {"condition": "service_completed_successfully"} for name in needed}),
            "healthcheck": _healthcheck(
                health_words(workload.http_port, workload.health.ready, workload.image.http_client),
                start_s=whole_s(workload.load_timeout_s),
                origin=f"pools.{workload.pool}.load_timeout_s",
            ),
            "init": True,
            "stop_signal": "SIGTERM",
            "stop_grace_period": Noted(f"{whole_s(workload.stop_s)}s", f"pools.{workload.pool}.stop_s"),
            "restart": "unless-stopped",
            **LOGGING,
        }
        return Noted(service, about_replica(workload, number))

    def _reads(self, workload: Workload, weights: Weights) -> bool:
        return any(one.source_text == weights.source_text for one in workload.weights)

    def _config(self, workload: Workload, name: str, target: str) -> dict[str, object]:
        return {"source": f"{object_name(workload.pool)}-{object_name(name)}", "target": target}

    def _rights(self, workload: Workload) -> dict[str, object]:
        if workload.image.user is None:
            return {**NO_NEW_RIGHTS}
        return {
            "user": Noted(workload.image.user, workload.image.user_reason),
            "cap_drop": ["ALL"],
            **NO_NEW_RIGHTS,
        }

    def _shared_memory(self, workload: Workload) -> dict[str, object]:
        key = f"pools.{workload.pool}.container"
        if workload.shm_bytes is None:
            return {"ipc": Noted("host", f"{key}.ipc")}
        return {"shm_size": Noted(workload.shm_bytes, f"{key}.shm_bytes")}

    def _devices(self, workload: Workload, number: int) -> dict[str, object]:
        ids = self.gpus[workload.pool, number]
        if not ids:
            return {}
        device = {"driver": "nvidia", "device_ids": list(ids), "capabilities": ["gpu"]}
        return {
            "deploy": {"resources": {"reservations": {"devices": [device]}}},
            "ulimits": {"memlock": -1, "stack": 67108864},
        }

    def _environment(self, workload: Workload) -> dict[str, object]:
        env = without_visible(workload.env) if workload.gpus else workload.env
        values: dict[str, object] = {}
        for one in env:
            if isinstance(one.value, SecretVariable):
                values[one.name] = Noted(required(one.value.variable), f"pools.{workload.pool}.{one.origin}")
            elif not isinstance(one.value, OwnAddress):
                values[one.name] = escaped(one.value)
        return _if_any("environment", values)

    def stores(self) -> dict[str, object]:
        """Redis and PostgreSQL, where they are declared."""
        deployment = self.declaration.deployment
        services: dict[str, object] = {}
        if deployment.postgres is not None:
            services["postgres"] = Noted(
                {
                    "image": Noted(deployment.postgres.image, "deployment.postgres.image"),
                    "environment": {
                        "POSTGRES_USER": "headrace",
                        "POSTGRES_DB": "headrace",
                        "POSTGRES_PASSWORD": required(POSTGRES_PASSWORD),
                    },
                    "volumes": ["postgres:/var/lib/postgresql"],
                    **_store(["pg_isready", "--username", "headrace"]),
                },
                "PostgreSQL for the ledger.",
            )
        if deployment.redis is not None:
            services["redis"] = Noted(
                {
                    "image": Noted(deployment.redis.image, "deployment.redis.image"),
                    "volumes": ["redis:/data"],
                    **_store(["redis-cli", "ping"]),
                },
                "Redis for limits that gateways share.",
            )
        return services

    def gateway(self, gateway: GatewayWorkload, engines: Sequence[str]) -> object:
        """The gateway: it sends requests to engines as they become ready."""
        deployment = self.declaration.deployment
        waits: dict[str, object] = {name: {"condition": "service_started"} for name in engines}
        for store in ("postgres", "redis"):
            if getattr(deployment, store) is not None:
                waits[store] = {"condition": "service_healthy"}
        ports: list[object] = [Noted(published(self.declaration.gateway.listen), "gateway.listen")]
        if gateway.is_control_open:
            ports.append(Noted(published(self.declaration.gateway.control), "gateway.control"))
        service: dict[str, object] = {
            "image": Noted(gateway.image, gateway.image_origin),
            "entrypoint": ["headrace"],
            "command": ["up"],
            "user": Noted(gateway.user, "deployment.user"),
            "cap_drop": ["ALL"],
            **NO_NEW_RIGHTS,
            "read_only": True,
            "tmpfs": ["/tmp"],  # noqa: S108 # the container's own
            "ports": ports,
            "environment": {
                "HEADRACE_STATE_DIR": str(gateway.state_dir),
                "HEADRACE_CONFIG": GATEWAY_FILE,
                **{name: required(name) for name in gateway.secret_variables},
            },
            "volumes": [f"state:{gateway.state_dir}"],
            "configs": [{"source": "gateway", "target": GATEWAY_FILE}],
            **_if_any("secrets", [{"source": one.name, "target": str(one.path)} for one in gateway.secret_files]),
            **_if_any("depends_on", waits),
            "healthcheck": _healthcheck(gateway_health(gateway), start_s=60),
            "init": True,
            "stop_signal": "SIGTERM",
            "stop_grace_period": Noted(f"{whole_s(gateway.drain_s) + GATEWAY_MARGIN_S}s", "gateway.drain_s"),
            "restart": "unless-stopped",
            **LOGGING,
        }
        return Noted(service, about_gateway(gateway))


def _bind(mount: Mount) -> object:
    entry = {
        "type": "bind",
        "source": escaped(mount.host_path),
        "target": str(mount.path),
        "read_only": True,
        "bind": {"create_host_path": False},
    }
    return Noted(entry, mount.origin)


def _store(health: list[str]) -> dict[str, object]:
    return {
        **NO_NEW_RIGHTS,
        "healthcheck": _healthcheck(tuple(health), start_s=60),
        "stop_grace_period": f"{STORE_STOP_S}s",
        "restart": "unless-stopped",
        **LOGGING,
    }


def _words(words: Sequence[str]) -> list[str]:
    return [escaped(word) for word in words]


def _healthcheck(words: tuple[str, ...], *, start_s: int, origin: str | None = None) -> dict[str, object]:
    return {
        "test": ["CMD", *_words(words)],
        "interval": f"{PROBE_INTERVAL_S}s",
        "timeout": f"{PROBE_TIMEOUT_S + 1}s",
        "retries": PROBE_FAILURES,
        "start_period": Noted(f"{start_s}s", origin) if origin else f"{start_s}s",
    }


def _if_any(key: str, value: object) -> dict[str, object]:
    return {key: value} if value else {}
