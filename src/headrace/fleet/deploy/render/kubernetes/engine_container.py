"""The engine's container: command with the origin of each flag, environment, ports, resources, rights."""

from collections.abc import Iterator, Sequence

from headrace.domain.endpoint import EngineKind
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.render.core.model import EnvVar, OwnAddress, SecretVariable, Workload
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.objects import (
    Cluster,
    Tree,
    binary_quantity,
    cpu_quantity,
    kept,
    literal,
    user_and_group,
)
from headrace.fleet.deploy.render.kubernetes.probes import lifecycle, probes_of

ROOT_FILES_NOTE = "engines on GPUs compile kernels into their own folders; not proven on a read-only root"


def container_of(
    cluster: Cluster,
    workload: Workload,
    mounts: Sequence[object],
    *,
    command: Sequence[object] | None = None,
    arguments: Sequence[object] | None = None,
    env: Sequence[object] = (),
    serves: bool = True,
    probes: Tree | None = None,
    end: Tree | None = None,
    capabilities: tuple[str, ...] = (),
) -> Tree:
    """Return the container `engine`; what is given in place of its own is that of one node of several."""
    image = workload.image
    return kept(
        {
            "name": "engine",
            "image": Noted(image.reference, image.origin),
            "command": list(command if command is not None else image.command),
            "args": list(arguments if arguments is not None else noted_arguments(cluster, workload)),
            "env": [*env, *env_of(cluster, workload)],
            "ports": [
                Noted({"name": port.name, "containerPort": port.number}, port.origin)
                for port in (workload.ports if serves else ())
            ],
            "resources": resources_of(cluster, workload),
            **((probes_of(workload) if probes is None else probes) if serves else {}),
            "lifecycle": lifecycle(cluster, workload) if end is None else end,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": rights_of(cluster, workload, capabilities),
            "volumeMounts": list(mounts),
        }
    )


def noted_arguments(cluster: Cluster, workload: Workload, words: Sequence[str] | None = None) -> list[object]:
    """Return the arguments, each flag with the declared key that it comes from."""
    origins = _flag_origins(cluster, workload)
    extra = set(cluster.pool(workload).options.extra_args)
    found: list[object] = []
    for word in workload.args if words is None else words:
        if word in extra:
            found.append(Noted(literal(word), f"pools.{workload.pool}.extra_args"))
        elif word in origins:
            found.append(Noted(literal(word), origins[word]))
        else:
            found.append(literal(word))
    return found


def _flag_origins(cluster: Cluster, workload: Workload) -> dict[str, str]:
    named: dict[str, str] = {}
    for flag in driver_for(workload.engine).emitted_flags:
        scope, _, key = flag.option.partition(".<name>.")
        if not key or scope not in ("pools", "models"):
            continue
        name = workload.pool if scope == "pools" else workload.model
        named.setdefault(flag.flag, f"{scope}.{name}.{key}")
    return named


def env_of(cluster: Cluster, workload: Workload) -> list[object]:
    """Return the environment: secrets by reference alone."""
    return [_env_entry(cluster, workload, one) for one in workload.env]


def _env_entry(cluster: Cluster, workload: Workload, one: EnvVar) -> object:
    if isinstance(one.value, SecretVariable):
        reference = {"name": cluster.settings.secret, "key": one.value.variable}
        entry: Tree = {"name": one.name, "valueFrom": {"secretKeyRef": reference}}
        return Noted(entry, f"pools.{workload.pool}.{one.origin}.{one.name}")
    if isinstance(one.value, OwnAddress):
        return {"name": one.name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    entry = {"name": one.name, "value": literal(one.value)}
    return Noted(entry, f"pools.{workload.pool}.{one.origin}") if one.origin.startswith("runtime.") else entry


def resources_of(
    cluster: Cluster, workload: Workload, *, gpus: int | None = None, gpu_origin: str | None = None
) -> Tree:
    """Return requests and limits: GPUs alike in both, memory alike, CPUs only requested."""
    settings, key = cluster.pool_settings(workload), f"pools.{workload.pool}"
    count = workload.gpus_per_node if gpus is None else gpus
    shared: Tree = {}
    if count:
        shared[workload.placement.gpu_resource] = Noted(count, gpu_origin or _gpu_origin(workload, key))
    for name, amount in settings.resources.items():
        shared[name] = Noted(amount, f"{key}.kubernetes.resources")
    if settings.memory_bytes is not None:
        shared["memory"] = Noted(
            binary_quantity(settings.memory_bytes), f"{key}.kubernetes.memory_bytes, /dev/shm included"
        )
    requests = dict(shared)
    if settings.cpus is not None:
        requests["cpu"] = Noted(cpu_quantity(settings.cpus), f"{key}.kubernetes.cpus")
    elif workload.engine is EngineKind.LLAMACPP and (threads := cluster.pool(workload).threads) is not None:
        requests["cpu"] = Noted(str(threads), f"{key}.threads")
    return kept({"requests": requests, "limits": shared})


def _gpu_origin(workload: Workload, key: str) -> str:
    if workload.placement.gpus is not None:
        return f"{key}.placement.gpus"
    whole = f"{key}.parallel: {workload.gpus} for a replica"
    return f"{whole} over {workload.nodes} nodes" if workload.nodes > 1 else whole


def rights_of(cluster: Cluster, workload: Workload, capabilities: tuple[str, ...] = ()) -> object:
    """Return the container's security context."""
    settings, image = cluster.pool_settings(workload), workload.image
    read_only = settings.read_only_root
    note = f"pools.{workload.pool}.kubernetes.read_only_root"
    if read_only is None:
        read_only = workload.engine is EngineKind.LLAMACPP
        note = ROOT_FILES_NOTE if not read_only else "it writes nothing but its scratch folders"
    return kept(
        {
            **dict(_user(image.user, image.user_reason)),
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": Noted(read_only, note),
            "capabilities": kept(
                {
                    "drop": ["ALL"],
                    "add": Noted(
                        [*settings.capabilities, *capabilities],
                        f"pools.{workload.pool}.kubernetes.{'mpi_keys' if capabilities else 'capabilities'}",
                    ),
                }
            ),
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    )


def is_read_only(cluster: Cluster, workload: Workload) -> bool:
    declared = cluster.pool_settings(workload).read_only_root
    return workload.engine is EngineKind.LLAMACPP if declared is None else declared


def _user(user: str | None, reason: str) -> Iterator[tuple[str, object]]:
    if user is None:
        yield "runAsNonRoot", Noted(False, f"the image runs as root: {reason}")
        return
    uid, gid = user_and_group(user)
    yield "runAsNonRoot", uid != 0
    yield "runAsUser", Noted(uid, reason)
    yield "runAsGroup", gid
