"""Where a target's engines live: in containers, each with an address of its own, or on the machine itself."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace.declaration.model import Declaration

FILE_DIR = PurePosixPath("/etc/headrace/launch")
SCRATCH_DIR = PurePosixPath("/scratch")
"""Within a container: writable, in memory."""
FIRST_PORT = 30000
"""Of the first replica of the first pool, where it declares no port. Our choice; SGLang's default."""
PORTS_OF_A_POOL = 100
"""On the machine itself, from one pool's first port to the next one's, where they declare none. More replicas than this
do not fit into one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What an engine's command line depends on besides the declaration."""

    is_container: bool
    weights_dir: PurePosixPath
    """Where engines see the model volume."""
    file_dir: PurePosixPath
    scratch_dir: PurePosixPath
    bind_host: str


def container_site(declaration: Declaration) -> Site:
    """Engines in containers: they listen on all addresses of a network that only the gateway shares."""
    return Site(
        is_container=True,
        weights_dir=PurePosixPath(declaration.deployment.models.mount_path),
        file_dir=FILE_DIR,
        scratch_dir=SCRATCH_DIR,
        bind_host="0.0.0.0",  # noqa: S104 # within the container's own network
    )


def host_site(declaration: Declaration) -> Site:
    """Engines on the machine itself: they listen on its loopback address."""
    return Site(
        is_container=False,
        weights_dir=PurePosixPath(declaration.deployment.models.host_dir),
        file_dir=PurePosixPath("/etc") / declaration.deployment.namespace / "launch",
        scratch_dir=PurePosixPath("/run") / declaration.deployment.namespace,
        bind_host="127.0.0.1",
    )
