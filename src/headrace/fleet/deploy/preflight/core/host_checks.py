"""The machine around the GPUs: shared memory, limits, disk, ports, network, container runtime, clock."""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.preflight.core.finding import Finding, fail, ok, warn
from headrace.fleet.deploy.preflight.core.machine import Machine, PoolPlan
from headrace.sizing.memory_plan import GIB

SHARED = "/dev/shm"  # noqa: S108 # the name of it, nothing is written there
SHM_BYTES = GIB
"""NCCL's own advice for containers. Source: NCCL user guide, troubleshooting, shared memory."""
OPEN_FILES = 65_536
LEAST_OPEN_FILES = 1024
"""Below it, a gateway or an engine with a few hundred streams fails. Source: one stream takes two sockets."""
CLOCK_S = 2.0
"""Beyond it tokens, leases and logs of several machines contradict each other."""
NETWORK_FILESYSTEMS = ("nfs", "cifs", "smb", "fuse", "ceph", "lustre", "glusterfs", "9p")
DISK_SPARE = 1.05
"""A file is written beside its final place before it is renamed."""


def check_host(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    """Yield what of the machine bears on the pool."""
    yield from _shared_memory(plan, machine)
    yield from _limits(plan, machine)
    yield from _disk(plan, machine)
    yield from _ports(plan, machine)
    yield from _nccl(plan, machine)
    yield from _rdma(plan, machine)
    yield from _container(plan, machine)
    yield from _clock(machine)


def _shared_memory(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    if plan.devices < 2:
        return
    if machine.shm_bytes is None:
        yield warn("shm", f"{SHARED} could not be seen")
    elif machine.shm_bytes < SHM_BYTES:
        yield fail(
            "shm",
            f"{SHARED} has {machine.shm_bytes / 2**20:.0f} MiB",
            needed=f"1 GiB, since {plan.devices} GPUs talk through it",
            remedy="Start the container with --ipc=host or --shm-size=16g; on Kubernetes mount an emptyDir with "
            f"medium: Memory at {SHARED}.",
        )
    else:
        yield ok("shm", f"{SHARED} has {machine.shm_bytes / GIB:.1f} GiB")


def _limits(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    if machine.open_files is not None:
        seen = f"{machine.open_files} open files allowed"
        remedy = "Raise it: ulimit -n 65536, LimitNOFILE= in the systemd unit, or --ulimit nofile=65536."
        if machine.open_files < LEAST_OPEN_FILES:
            yield fail("ulimits", seen, needed=str(OPEN_FILES), remedy=remedy)
        elif machine.open_files < OPEN_FILES:
            yield warn("ulimits", seen, needed=f"{OPEN_FILES} for many streams", remedy=remedy)
        else:
            yield ok("ulimits", seen)
    if _uses_network(plan) and machine.locked_bytes not in (None, -1):
        yield warn(
            "memlock",
            f"{machine.locked_bytes} bytes of locked memory allowed",
            needed="no limit, for RDMA",
            remedy="ulimit -l unlimited, LimitMEMLOCK=infinity, or --ulimit memlock=-1.",
        )


def _disk(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    disk = machine.disk
    if disk is None:
        yield warn("disk", "the folder of models could not be seen")
        return
    kind = disk.filesystem
    seen = f"{disk.free_bytes / GIB:.1f} GiB free on {disk.path} ({kind})"
    wanted = 0
    if not plan.facts.is_here:
        wanted = plan.model.weight_bytes or plan.facts.total_bytes or 0
    if wanted * DISK_SPARE > disk.free_bytes:
        yield fail(
            "disk",
            seen,
            needed=f"{wanted * DISK_SPARE / GIB:.1f} GiB for {plan.repository}, which is not here yet",
            remedy="Free room, or set HEADRACE_CACHE_DIR to a larger disk.",
        )
    elif kind.startswith(NETWORK_FILESYSTEMS):
        yield warn("disk", seen, needed="a local disk: engines read all weights at each start")
    else:
        yield ok("disk", seen)


def _ports(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    first = plan.pool.port
    if first is None:
        yield ok("port", "a free one is chosen at the start")
        return
    if machine.ports is None:
        yield warn("port", "which ports are taken could not be seen")
        return
    taken = [port for port in range(first, first + plan.pool.replica_count) if port in machine.ports]
    if taken:
        yield fail(
            "port",
            f"somebody listens on {', '.join(map(str, taken))}",
            needed=f"{plan.pool.replica_count} free from {first}",
            remedy=f"See who: ss -ltnp 'sport = :{taken[0]}'. Set another pools.{plan.name}.port, or leave it out.",
        )
    else:
        yield ok("port", f"{first} is free")


def _nccl(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    if plan.devices < 2 or machine.interfaces is None:
        return
    named = plan.pool.options.runtime.env.get("NCCL_SOCKET_IFNAME", "")
    found = [name for name in machine.interfaces if _is_chosen(name, named)]
    up = [name for name in found if machine.interfaces[name]]
    if up:
        yield ok("nccl-interface", f"{', '.join(up)} up")
    elif not named:
        yield ok("nccl-interface", "only loopback is up: enough for one machine")
    else:
        seen = f"NCCL_SOCKET_IFNAME={named}: " + (f"{', '.join(found)} is down" if found else "no such interface")
        others = ", ".join(name for name, is_up in machine.interfaces.items() if is_up and name != "lo") or "none"
        yield fail(
            "nccl-interface",
            seen,
            needed="an interface that is up",
            remedy=f"Set pools.{plan.name}.runtime.env.NCCL_SOCKET_IFNAME to one that is (up: {others}), or "
            "ip link set NAME up.",
        )


def _is_chosen(interface: str, named: str) -> bool:
    """NCCL's own syntax: prefixes, `=` for whole names, `^` for all but these.

    Source: NCCL user guide, NCCL_SOCKET_IFNAME; unset is all but lo and docker.
    """
    text = named or "^lo,docker"
    is_exclusion = text.startswith("^")
    text = text.lstrip("^")
    is_exact = text.startswith("=")
    words = [word for word in text.lstrip("=").split(",") if word]
    is_listed = any(interface == word if is_exact else interface.startswith(word) for word in words)
    return is_listed is not is_exclusion


def _uses_network(plan: PoolPlan) -> bool:
    """Whether KV goes from engine to engine; llama.cpp's goes through a folder."""
    return plan.pool.options.disaggregation is not None and plan.pool.engine is not EngineKind.LLAMACPP


def _rdma(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    if not _uses_network(plan) or machine.rdma is None:
        return
    if machine.rdma:
        yield ok("rdma", ", ".join(machine.rdma))
    else:
        yield warn(
            "rdma",
            "no RDMA device in /sys/class/infiniband",
            needed="one, for KV transfer between machines at full speed",
            remedy="Load the driver, or pass /dev/infiniband into the container; over TCP expect slow first tokens.",
        )


def _container(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    command = plan.pool.options.runtime.command
    if not command or command[0] not in ("docker", "podman") or machine.runtimes is None:
        return
    if command[0] not in machine.runtimes:
        yield fail(
            "container-runtime",
            f"no {command[0]} here",
            needed=f"pools.{plan.name}.runtime.command",
            remedy=f"Install {command[0]}, or set pools.{plan.name}.runtime.python.",
        )
    elif plan.pool.options.runtime.device == "gpu" and "nvidia" not in machine.runtimes:
        yield fail(
            "container-runtime",
            f"{command[0]} without the NVIDIA container toolkit",
            needed="GPUs inside containers",
            remedy="Install nvidia-container-toolkit, then: nvidia-ctk runtime configure && systemctl restart docker.",
        )
    else:
        yield ok("container-runtime", ", ".join(sorted(machine.runtimes)))


def _clock(machine: Machine) -> Iterator[Finding]:
    remedy = "Start chrony or systemd-timesyncd: timedatectl set-ntp true."
    if machine.clock_offset_s is not None and abs(machine.clock_offset_s) > CLOCK_S:
        seen = f"the clock is {abs(machine.clock_offset_s):.1f} s off"
        yield fail("clock", seen, needed=f"less than {CLOCK_S:g} s", remedy=remedy)
    elif machine.is_clock_synchronized is False:
        yield warn("clock", "nothing keeps the clock right", needed="NTP", remedy=remedy)
    elif machine.clock_offset_s is not None or machine.is_clock_synchronized:
        yield ok("clock", "synchronized")
