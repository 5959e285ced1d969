"""The declaration as a whole -> workloads, the gateway, and notes: what every target starts from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace import __version__
from headrace.declaration.addresses import is_loopback, parse_listen
from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.engine_workloads import PoolPlan, make_workload, own_pools
from headrace.fleet.deploy.render.core.gateway_declaration import Reach, gateway_declaration
from headrace.fleet.deploy.render.core.model import GatewayWorkload, RenderNote, Severity, Workload
from headrace.fleet.deploy.render.core.pool_notes import pool_notes
from headrace.fleet.deploy.render.core.site import Site

POSTGRES_PASSWORD = "HEADRACE_POSTGRES_PASSWORD"  # noqa: S105 # a variable's name
REDIS_URL = "redis://redis:6379/0"
"""Of the Redis that is deployed beside the gateway: every target calls it `redis`."""
SECRET_DIR = PurePosixPath("/run/secrets")
STATE_DIR = PurePosixPath("/var/lib/headrace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The workloads of all rendered pools; empty where a note is an error."""

    workloads: tuple[Workload, ...]
    notes: tuple[RenderNote, ...]

    @property
    def errors(self) -> tuple[RenderNote, ...]:
        return tuple(note for note in self.notes if note.severity is Severity.ERROR)


def make_engines(declaration: Declaration, site: Site, *, pool: str | None = None) -> Engines:
    """Make a workload for each pool that headrace runs, or for `pool`; on the machine itself, for each replica."""
    plans = own_pools(declaration, pool)
    notes = tuple(note for plan in plans for note in pool_notes(declaration, plan, site))
    if any(note.severity is Severity.ERROR for note in notes):
        return Engines(workloads=(), notes=notes)
    workloads = [
        make_workload(declaration, plan, site, number=number) for plan in plans for number in _numbers(plan, site)
    ]
    return Engines(workloads=tuple(workloads), notes=notes)


def _numbers(plan: PoolPlan, site: Site) -> range:
    return range(1 if site.is_container else plan.replicas)


def make_gateway(
    declaration: Declaration,
    reaches: Mapping[str, Reach],
    site: Site,
    *,
    folder: str,
    control: str | None = None,
    database: str | None = None,
    secret_dir: PurePosixPath = SECRET_DIR,
) -> GatewayWorkload:
    """Make the gateway that governs the rendered pools.

    `reaches` says how it reaches each pool; `control` replaces the declared HOST:PORT of the control API; `database`
    stands where no ledger.database is declared. A Redis that is deployed beside it is used where gateway.sharing.redis
    names none. `secret_dir` is where it finds the files that the declaration names.
    """
    listen_host, listen_port = parse_listen(declaration.gateway.listen)
    control_host, control_port = parse_listen(control or declaration.gateway.control)
    if site.is_container:
        listen_host = "0.0.0.0"  # noqa: S104 # within the container's own network; the target publishes it
    made = gateway_declaration(
        declaration,
        reaches,
        folder=folder,
        listen=_address(listen_host, listen_port),
        control=_address(control_host, control_port),
        secret_dir=secret_dir,
        database=database,
        redis=REDIS_URL if site.is_container and declaration.deployment.redis is not None else None,
    )
    section = declaration.deployment.gateway
    return GatewayWorkload(
        image=section.image or f"headrace:{__version__}",
        image_origin="deployment.gateway.image" if section.image else "built from the project's Dockerfile",
        replicas=section.replicas,
        listen_port=listen_port,
        control_port=control_port,
        is_control_open=not is_loopback(control_host),
        has_tls=declaration.gateway.tls is not None,
        user=declaration.deployment.user,
        declaration_text=made.text,
        secret_variables=made.secret_variables,
        secret_files=made.secret_files,
        state_dir=STATE_DIR,
        drain_s=declaration.gateway.drain_s,
    )


def database_url(declaration: Declaration, *, host: str) -> str | None:
    """Return the ledger's URL where PostgreSQL is deployed beside the gateway; the password stays a reference."""
    if declaration.deployment.postgres is None:
        return None
    return f"postgresql+psycopg://headrace:${{env:{POSTGRES_PASSWORD}}}@{host}:5432/headrace"


def reaches_of(workloads: tuple[Workload, ...], address: Callable[[Workload], tuple[str, ...]]) -> dict[str, Reach]:
    """Return how the gateway reaches each pool: `address` gives the endpoints of one workload."""
    found: dict[str, list[str]] = {}
    for workload in workloads:
        found.setdefault(workload.pool, []).extend(address(workload))
    return {pool: Reach(endpoints=tuple(urls)) for pool, urls in found.items()}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
