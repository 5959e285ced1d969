"""Which GPUs of one machine each replica gets: counted up, or as the pool's CUDA_VISIBLE_DEVICES says."""

from collections.abc import Iterator, Sequence

from headrace.fleet.deploy.render.core.model import EnvVar, RenderNote, Severity, Workload

VISIBLE = "CUDA_VISIBLE_DEVICES"


def assign_gpus(workloads: Sequence[Workload]) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return the device ids of each replica of one machine, by pool and number."""
    assigned: dict[tuple[str, int], tuple[str, ...]] = {}
    taken = {device for workload in workloads for device in declared_gpus(workload)}
    free = (str(number) for number in range(10**6) if str(number) not in taken)
    for workload in workloads:
        for number in replica_numbers(workload):
            declared = declared_gpus(workload)
            ids = declared if declared else tuple(next(free) for _ in range(workload.gpus))
            assigned[workload.pool, number] = ids
    return assigned


def replica_numbers(workload: Workload) -> range:
    """Return the numbers of the replicas that a workload stands for."""
    if workload.image.reference:
        return range(workload.replicas)
    return range(workload.number, workload.number + 1)


def declared_gpus(workload: Workload) -> tuple[str, ...]:
    """Return what runtime.env says of devices; empty where it says nothing."""
    value = next((one.value for one in workload.env if one.name == VISIBLE), None)
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else ()


def without_visible(env: Sequence[EnvVar]) -> tuple[EnvVar, ...]:
    """A container sees its devices alone, and counts them from 0."""
    return tuple(one for one in env if one.name != VISIBLE)


def machine_notes(workloads: Sequence[Workload]) -> Iterator[RenderNote]:
    """Yield what one machine cannot hold."""
    needed = sum(len(ids) for ids in assign_gpus(workloads).values())
    for workload in workloads:
        key = f"pools.{workload.pool}.placement.gpus_per_node"
        if workload.nodes > 1:
            yield RenderNote(
                severity=Severity.ERROR,
                key=key,
                message=f"spreads a replica over {workload.nodes} nodes, and this target writes for one machine",
                hint="Use `headrace render kubernetes`",
            )
        elif (per_node := workload.placement.gpus_per_node) is not None and needed > per_node:
            yield RenderNote(
                severity=Severity.ERROR,
                key=key,
                message=f"is {per_node}, but all replicas together need {needed} GPUs of one machine",
                hint="Lower replicas or parallel.tensor, or use `headrace render kubernetes`",
            )
        declared = declared_gpus(workload)
        if declared and workload.gpus and len(declared) != workload.gpus:
            yield RenderNote(
                severity=Severity.ERROR,
                key=f"pools.{workload.pool}.runtime.env.{VISIBLE}",
                message=f"names {len(declared)} devices, but a replica needs {workload.gpus}",
            )
        elif declared and workload.replicas > 1:
            yield RenderNote(
                severity=Severity.ERROR,
                key=f"pools.{workload.pool}.runtime.env.{VISIBLE}",
                message=f"gives all {workload.replicas} replicas the same devices",
                hint="Take it out: each replica then gets devices of its own",
            )
