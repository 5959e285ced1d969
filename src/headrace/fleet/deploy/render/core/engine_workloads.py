"""Pools -> workloads: each pool's own launch, as the same driver makes it for a local start, put into a container or a
unit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headrace.catalog.images import EngineImage, find_image
from headrace.declaration.model import Declaration, Pool
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import Launch, ReplicaSpec
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.render.core.health import expected_load_s, health_paths
from headrace.fleet.deploy.render.core.model import (
    EnvValue,
    EnvVar,
    ImageChoice,
    OwnAddress,
    Port,
    SecretVariable,
    TextFile,
    Weights,
    Workload,
)
from headrace.fleet.deploy.render.core.multi_node import nodes_of
from headrace.fleet.deploy.render.core.site import FIRST_PORT, PORTS_OF_A_POOL, Site
from headrace.fleet.deploy.render.core.weights import weights_of

GIB = 2**30
HOME = "home"
SHM_BYTES, SHM_SEVERAL_BYTES = GIB, 16 * GIB
"""Private /dev/shm of one device, and of several, which talk through it. Source: the bound of `headrace check`, and its
remedy."""

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
OWN_ADDRESS_VARIABLES = frozenset({"VLLM_NIXL_SIDE_CHANNEL_HOST"})
"""Where an engine wants the address at which others reach it."""

WITHOUT_IMAGE = ImageChoice(
    reference="", command=(), http_client="python3", user=None, user_reason="", origin="", engine_version=None
)
"""Of a workload that runs on the machine itself."""

PROGRAMS = {
    EngineKind.VLLM: ("vllm",),
    EngineKind.SGLANG: ("sglang", "serve"),
    EngineKind.TENSORRT_LLM: ("trtllm-serve",),
    EngineKind.LLAMACPP: ("llama-server",),
}
"""Looked up where nothing says where the engine is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What is known of a pool before its command line is made."""

    name: str
    pool: Pool
    first_port: int
    """Of its first replica, on the machine itself."""
    gpus: int
    nodes: int
    replicas: int


def own_pools(declaration: Declaration, only: str | None = None) -> list[PoolPlan]:
    """Return the pools that are rendered: those that headrace runs, or `only` one of them."""
    return [
        _plan(name, pool, FIRST_PORT + number * PORTS_OF_A_POOL)
        for number, (name, pool) in enumerate(declaration.pools.items())
        if not pool.is_remote and only in (None, name) and _replicas(pool) > 0
    ]


def _plan(name: str, pool: Pool, free_port: int) -> PoolPlan:
    gpus = gpus_of(pool)
    return PoolPlan(
        name=name,
        pool=pool,
        first_port=pool.port or free_port,
        gpus=gpus,
        nodes=nodes_of(pool, gpus),
        replicas=_replicas(pool),
    )


def _replicas(pool: Pool) -> int:
    return pool.replica_count if pool.placement.replicas is None else pool.placement.replicas


def gpus_of(pool: Pool) -> int:
    """Return the GPUs of one replica."""
    if pool.placement.gpus is not None:
        return pool.placement.gpus
    if pool.engine is EngineKind.LLAMACPP or pool.options.runtime.device == "cpu":
        return 0
    return pool.options.parallel.devices


def known_image(plan: PoolPlan) -> EngineImage | None:
    """Return the engine's own image of the declared version; None where none is known."""
    device = "gpu" if plan.gpus else "cpu"
    return find_image(plan.pool.engine, device, plan.pool.container.engine_version)


def make_workload(declaration: Declaration, plan: PoolPlan, site: Site, *, number: int = 0) -> Workload:
    """Make the workload of a pool; on the machine itself, of its replica `number`.

    Call it only where `pool_notes` has no error.
    """
    name, pool = plan.name, plan.pool
    image = _image(declaration, plan) if site.is_container else WITHOUT_IMAGE
    spec = spec_of(declaration, plan, site, number=number, command=image.command)
    launch = driver_for(pool.engine).launch(spec)
    weights = weights_of(declaration, name, site)
    disaggregation = pool.options.disaggregation
    return Workload(
        pool=name,
        number=number,
        engine=pool.engine,
        model=pool.model,
        served_model=spec.served_model,
        role=disaggregation.role if disaggregation is not None else None,
        replicas=plan.replicas,
        nodes=plan.nodes,
        gpus=plan.gpus,
        image=image,
        args=launch.argv[len(image.command) :],
        env=tuple(_env(launch, pool, image, site)),
        ports=tuple(_ports(spec)),
        health=health_paths(pool.engine),
        files=tuple(TextFile(path=PurePosixPath(path), text=text) for path, text in launch.files.items()),
        weights=weights,
        scratch_dirs=tuple(_scratch_dirs(spec, pool, image, site)),
        shm_bytes=_shm_bytes(plan),
        stop_s=pool.stop_s,
        load_timeout_s=pool.load_timeout_s,
        expected_load_s=load_s_of(pool, weights),
        placement=pool.placement,
        notes=launch.notes,
    )


def spec_of(
    declaration: Declaration, plan: PoolPlan, site: Site, *, number: int, command: tuple[str, ...] = ()
) -> ReplicaSpec:
    """Resolve a replica for its driver; `command` are the words that start the engine in its image."""
    name, pool = plan.name, plan.pool
    weights = weights_of(declaration, name, site)
    model = declaration.models[pool.model].for_engine(pool.engine)
    stem = name if site.is_container else f"{name}-{number}"
    options = pool.options
    if command:
        changed = {"command": command, "python": None}
        options = options.model_copy(update={"runtime": options.runtime.model_copy(update=changed)})
    elif not options.runtime.command and options.runtime.python is None:
        changed = {"command": PROGRAMS[pool.engine]}
        options = options.model_copy(update={"runtime": options.runtime.model_copy(update=changed)})
    return ReplicaSpec(
        pool=name,
        replica=number,
        served_model=pool.served_model or pool.model,
        model_path=Path(weights[0].path),
        host=site.bind_host,
        port=pool.port or FIRST_PORT if site.is_container else plan.first_port + number,
        context_tokens=model.context_tokens,
        threads=pool.threads or 1,
        embeddings=pool.embeddings,
        slot_dir=Path(site.scratch_dir / "slots" if site.is_container else site.scratch_dir / stem / "slots"),
        file_dir=Path(site.file_dir / stem),
        stop_s=pool.stop_s,
        load_timeout_s=pool.load_timeout_s,
        options=options,
        chat_template=model.chat_template,
        draft_path=Path(weights[1].path) if len(weights) > 1 else None,
        trust_remote_code=model.trust_remote_code,
        weight_bytes=model.weight_bytes,
    )


def _image(declaration: Declaration, plan: PoolPlan) -> ImageChoice:
    container, key = plan.pool.container, f"pools.{plan.name}.container"
    known = known_image(plan) or find_image(plan.pool.engine, "gpu")
    assert known is not None, "every engine that headrace starts has an image"
    user, why = _user(declaration, plan, known)
    if container.image is not None:
        return ImageChoice(
            reference=container.image,
            command=container.command or known.command,
            http_client=known.http_client,
            user=user,
            user_reason=why,
            origin=f"{key}.image",
            engine_version=container.engine_version,
        )
    return ImageChoice(
        reference=known.pinned,
        command=container.command or known.command,
        http_client=known.http_client,
        user=user,
        user_reason=why,
        origin=f"{key}.engine_version" if container.engine_version else known.source,
        engine_version=known.version,
    )


def _user(declaration: Declaration, plan: PoolPlan, known: EngineImage) -> tuple[str | None, str]:
    if plan.pool.container.user is not None:
        return plan.pool.container.user, f"pools.{plan.name}.container.user"
    if known.user == "any":
        return declaration.deployment.user, f"deployment.user; {known.user_source}"
    return known.user, known.user_source


def _shm_bytes(plan: PoolPlan) -> int | None:
    container = plan.pool.container
    if container.ipc == "host":
        return None
    return container.shm_bytes or (SHM_SEVERAL_BYTES if plan.gpus > 1 else SHM_BYTES)


def _scratch_dirs(spec: ReplicaSpec, pool: Pool, image: ImageChoice, site: Site) -> Iterator[PurePosixPath]:
    if pool.engine is EngineKind.LLAMACPP:
        yield PurePosixPath(spec.slot_dir)
    if _needs_home(pool, image):
        yield site.scratch_dir / HOME


def _needs_home(pool: Pool, image: ImageChoice) -> bool:
    """A user that the image does not know has no home, where engines keep what they compile."""
    return pool.container.user is not None and bool(image.reference)


def _env(launch: Launch, pool: Pool, image: ImageChoice, site: Site) -> Iterator[EnvVar]:
    declared = pool.options.runtime.env
    if _needs_home(pool, image) and "HOME" not in declared:
        yield EnvVar(name="HOME", value=str(site.scratch_dir / HOME), origin=f"container.user {image.user}")
    for name, text in sorted(launch.env.items()):
        value: EnvValue = text
        if name in declared:
            found = REFERENCE.fullmatch(text)
            value = SecretVariable(variable=found[1]) if found else text
        elif name in OWN_ADDRESS_VARIABLES and site.is_container:
            value = OwnAddress()
        yield EnvVar(name=name, value=value, origin="runtime.env" if name in declared else "headrace")


def _ports(spec: ReplicaSpec) -> Iterator[Port]:
    yield Port(name="http", number=spec.port, origin=f"pools.{spec.pool}.port")
    if spec.options.telemetry.kv_events:
        origin = f"pools.{spec.pool}.telemetry.kv_events"
        yield Port(name="kv-events", number=spec.event_port, origin=origin)
        yield Port(name="kv-replay", number=spec.replay_port, origin=origin)
    if spec.options.disaggregation is not None:
        yield Port(name="kv-transfer", number=spec.transfer_port, origin=f"pools.{spec.pool}.disaggregation")


def load_s_of(pool: Pool, weights: tuple[Weights, ...]) -> float:
    """Return how long a start is expected to take."""
    known = [one.weight_bytes for one in weights if one.weight_bytes is not None]
    return expected_load_s(pool.engine, sum(known), pool.placement.read_bytes_per_s)
