"""What a gateway worker needs of the declaration, resolved: the one message that configures it.

Made by `compile_gateway_plan` from a Declaration and the endpoints that exist now; travels over the worker's Unix
socket as JSON and never touches a disk, since it holds resolved secrets.
"""

import msgspec

from headrace.declaration.auto_plan import AutoModelPlan, compile_auto_models
from headrace.declaration.handover_plan import HandoverPlan, compile_handover
from headrace.declaration.identity_plan import IdentityPlan, compile_identity
from headrace.declaration.model import Declaration, Model, Pool
from headrace.declaration.queue_plan import QueuePlan, compile_queue_plan
from headrace.declaration.routing_plan import AcceptsPlan, RoutingPlan, compile_accepts, compile_routing
from headrace.declaration.sharing_plan import SharingPlan, compile_sharing
from headrace.declaration.tenancy_plan import TenancyPlan, compile_tenancy_plan


class EndpointAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where one endpoint of a pool is."""

    endpoint: str
    """EndpointId."""
    url: str
    """http://HOST:PORT or https://HOST:PORT, with an optional path prefix."""
    ip: str | None = None
    """Address to connect to instead of resolving the host (DNS discovery)."""
    is_draining: bool = False


class HedgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """`pools.<name>.hedge`, where it is switched on."""

    budget_ratio: float
    min_delay_s: float


class ResumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.resume`, field for field."""

    enabled: bool = True
    max_resumes: int = 2
    wait_s: float = 10.0
    drain_after_s: float = 2.0
    budget_ratio: float = 0.2
    budget_minimum: int = 10
    kept_bytes: int = 1048576
    seeded: bool = False


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: the declared section as JSON values, and its endpoints now."""

    name: str
    model: str
    engine: str
    served_model: str
    embeddings: bool
    is_run_here: bool
    """headrace runs these replicas; its supervisor knows their phase."""
    endpoints: tuple[EndpointAddress, ...]
    discover: str
    discover_interval_s: float
    bearer: str | None
    headers: dict[str, str]
    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None
    tls_server_name: str | None
    connect_timeout_s: float
    first_token_timeout_s: float
    answer_timeout_s: float
    stall_timeout_s: float
    probe_interval_s: float
    probe_timeout_s: float
    eject_after: int
    eject_s: float
    structured_output_backend: str | None = None
    """What holds output to constraints, where the pool declares it; engines that need none have their own."""
    isolates_tenants: bool = False
    """Each tenant has a part of the engines' prefix caches to itself."""
    is_resumed: bool = True
    """Streams of this pool go on elsewhere, and those of others here."""
    resume_stall_s: float | None = None
    hedge: HedgePlan | None = None
    """None: not hedged."""
    handover: HandoverPlan | None = None
    """None: its engines do prefill and decode, and hand nothing over."""
    queue: QueuePlan = QueuePlan()
    accepts: AcceptsPlan | None = None
    """None: everything."""
    region: str | None = None
    context_tokens: int | None = None
    """Of one sequence, where it is declared; elsewhere engines tell."""
    prefill_tokens_per_s: float | None = None
    """Of one replica, all requests together, where it is declared."""
    decode_tokens_per_s: float | None = None
    devices: int = 1
    """Of one replica: what its GPU time is multiplied by."""
    kv_event_ranks: int = 0
    """Data-parallel ranks of one replica that tell of their KV caches; 0: events are not read."""


class LimitsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.limits`, field for field."""

    header_bytes: int
    body_bytes: int
    body_fields: int
    body_values: int
    header_timeout_s: float
    body_timeout_s: float
    idle_timeout_s: float
    slow_reader_timeout_s: float
    write_buffer_bytes: int
    event_bytes: int
    response_bytes: int
    connections: int
    in_flight: int


class GatewayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one worker serves by."""

    revision: int
    """Grows with every plan; seen in WorkerStatus."""
    limits: LimitsPlan
    models: tuple[str, ...]
    pools: tuple[PoolPlan, ...]
    tenancy: TenancyPlan
    tls_certificate: str | None
    tls_key: str | None
    cors_origins: tuple[str, ...]
    cors_max_age_s: int
    unknown_fields: str
    allow_gated: tuple[str, ...]
    media_hosts: tuple[str, ...]
    retry_max_attempts: int
    retry_backoff_s: float
    retry_budget_ratio: float
    retry_budget_minimum: int
    resume: ResumePlan
    heartbeat_s: float | None
    drain_s: float
    workers: int = 1
    """Processes of this gateway: each takes its share of an endpoint's places."""
    keeps_without_supervisor: bool
    """Go on serving when the supervisor is gone (`on_supervisor_loss: keep`)."""
    request_log: bool
    log_bytes: int
    log_files: int
    flush_interval_s: float
    buffer_records: int
    segment_bytes: int
    journal_bytes: int
    routing: dict[str, RoutingPlan]
    """By model."""
    auto_models: tuple[AutoModelPlan, ...] = ()
    sharing: SharingPlan = SharingPlan()
    """With whom limits are held together."""
    identity: IdentityPlan = IdentityPlan()
    """Who may call besides the holders of keys."""
    upload_bytes: int | None = None
    """Largest file that a caller may store; None: files and batches are not served."""


def compile_gateway_plan(
    declaration: Declaration, endpoints: dict[str, tuple[EndpointAddress, ...]], *, revision: int
) -> GatewayPlan:
    """Resolve `declaration` with the endpoints (by pool name) that exist now."""
    gateway, ledger, seen = declaration.gateway, declaration.ledger, declaration.observability
    return GatewayPlan(
        revision=revision,
        limits=msgspec.convert(gateway.limits.model_dump(), LimitsPlan),
        models=tuple(declaration.models),
        pools=tuple(
            _pool_plan(name, pool, endpoints.get(name, ()), declaration.models.get(pool.model))
            for name, pool in declaration.pools.items()
        ),
        tenancy=compile_tenancy_plan(declaration),
        tls_certificate=gateway.tls.certificate if gateway.tls else None,
        tls_key=gateway.tls.key if gateway.tls else None,
        cors_origins=gateway.cors.allow_origins,
        cors_max_age_s=gateway.cors.max_age_s,
        unknown_fields=gateway.fields.unknown_fields,
        allow_gated=gateway.fields.allow_gated,
        media_hosts=gateway.fields.media_hosts,
        retry_max_attempts=gateway.retry.max_attempts,
        retry_backoff_s=gateway.retry.backoff_s,
        retry_budget_ratio=gateway.retry.budget_ratio,
        retry_budget_minimum=gateway.retry.budget_minimum,
        resume=msgspec.convert(gateway.resume.model_dump(), ResumePlan),
        heartbeat_s=gateway.heartbeat_s,
        drain_s=gateway.drain_s,
        workers=gateway.workers,
        keeps_without_supervisor=declaration.on_supervisor_loss == "keep",
        request_log=seen.request_log,
        log_bytes=seen.log_bytes,
        log_files=seen.log_files,
        flush_interval_s=ledger.flush_interval_s,
        buffer_records=ledger.buffer_records,
        segment_bytes=ledger.segment_bytes,
        journal_bytes=ledger.journal_bytes,
        routing=compile_routing(declaration),
        auto_models=compile_auto_models(declaration),
        sharing=compile_sharing(gateway),
        identity=compile_identity(declaration.identity),
        upload_bytes=declaration.batch.file_bytes if declaration.batch.enabled else None,
    )


def _pool_plan(name: str, pool: Pool, endpoints: tuple[EndpointAddress, ...], model: Model | None) -> PoolPlan:
    return PoolPlan(
        name=name,
        model=pool.model,
        engine=pool.engine.value,
        served_model=pool.served_model or pool.model,
        embeddings=pool.embeddings,
        is_run_here=not pool.is_remote,
        endpoints=endpoints,
        discover=pool.discover,
        discover_interval_s=pool.discover_interval_s,
        bearer=pool.credentials.bearer,
        headers=dict(pool.credentials.headers),
        tls_ca=pool.tls.ca,
        tls_certificate=pool.tls.certificate,
        tls_key=pool.tls.key,
        tls_server_name=pool.tls.server_name,
        connect_timeout_s=pool.connect_timeout_s,
        first_token_timeout_s=pool.first_token_timeout_s,
        answer_timeout_s=pool.answer_timeout_s,
        stall_timeout_s=pool.stall_timeout_s,
        probe_interval_s=pool.probe.interval_s,
        probe_timeout_s=pool.probe.timeout_s,
        eject_after=pool.probe.eject_after,
        eject_s=pool.probe.eject_s,
        structured_output_backend=_structured_output_backend(pool),
        isolates_tenants=pool.options.prefix_cache.tenant_isolation,
        is_resumed=pool.resume.enabled,
        resume_stall_s=pool.resume.stall_s,
        hedge=_hedge_plan(pool),
        handover=compile_handover(pool, model),
        queue=compile_queue_plan(pool),
        accepts=compile_accepts(pool),
        region=pool.region,
        context_tokens=_context_tokens(pool, model),
        prefill_tokens_per_s=pool.rates.prefill_tokens_per_s,
        decode_tokens_per_s=pool.rates.decode_tokens_per_s,
        devices=pool.options.parallel.devices,
        kv_event_ranks=pool.options.parallel.data if pool.options.telemetry.kv_events else 0,
    )


def _context_tokens(pool: Pool, model: Model | None) -> int | None:
    """What engines that run here are started with; what runs elsewhere may have been given any, unless it is said."""
    if model is None or (pool.is_remote and "context_tokens" not in model.model_fields_set):
        return None
    return model.context_tokens


def _hedge_plan(pool: Pool) -> HedgePlan | None:
    hedge = pool.hedge
    return HedgePlan(budget_ratio=hedge.budget_ratio, min_delay_s=hedge.min_delay_s) if hedge.enabled else None


def _structured_output_backend(pool: Pool) -> str | None:
    """What is declared; where headrace starts the engines, it switches on xgrammar unless told otherwise."""
    return pool.options.structured_output.backend or (None if pool.is_remote else "xgrammar")
