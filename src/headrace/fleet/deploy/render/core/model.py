"""The neutral model that every target writes in its own words: engines, gateway, files, and what cannot be rendered."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Literal

from headrace.declaration.deployment_sections import Placement
from headrace.declaration.model import Declaration
from headrace.declaration.model_source import ModelSource
from headrace.domain.endpoint import EngineKind


class Severity(StrEnum):
    """How a note is meant."""

    ERROR = "error"
    """Nothing is rendered."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderNote:
    """What cannot be rendered, or not as declared, and why."""

    severity: Severity
    key: str
    """Dotted key of the declaration, such as `pools.main.parallel.tensor`."""
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.key} {self.message}{f'. {self.hint}' if self.hint else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """One file to write."""

    path: str
    """Relative, with forward slashes."""
    text: str
    is_executable: bool = False
    is_only_split: bool = False
    """Means something in a folder alone: not on stdout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What is to be rendered."""

    declaration: Declaration
    """Loaded with `keeps_secrets`."""
    folder: str
    """The declaration's, absolute: relative paths in it count from there."""
    pool: str | None = None
    """Only this pool, and no gateway; None: everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """What a target made of it. With an error among the notes there are no files."""

    files: tuple[RenderedFile, ...]
    notes: tuple[RenderNote, ...]

    @property
    def errors(self) -> tuple[RenderNote, ...]:
        return tuple(note for note in self.notes if note.severity is Severity.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVariable:
    """The value is a secret that the declaration names as ${env:VARIABLE}: rendered as a reference, never in clear."""

    variable: str


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """The value is the address at which others reach this container, known only when it runs."""


EnvValue = str | SecretVariable | OwnAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVar:
    """One environment variable."""

    name: str
    value: EnvValue
    origin: str
    """Declared key, or "headrace" for what the engine's driver sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port of a container."""

    name: Literal["http", "kv-events", "kv-replay", "kv-transfer", "control"]
    number: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPaths:
    """Which path answers what (ENGINES.md section 3). Never one that takes a scheduler slot: busy is not dead."""

    started: str
    """Answers 2xx once the engine has loaded."""
    ready: str
    """2xx: requests may be sent here."""
    alive: str
    """Fails for good only where a restart is the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A file that the engine's command names, to be mounted read-only."""

    path: PurePosixPath
    text: str

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights that a workload reads."""

    model: str
    """The declared model."""
    is_draft: bool
    source: ModelSource
    source_text: str
    sha256: str | None
    weight_bytes: int | None
    """Declared or known size; None: not known."""
    path: PurePosixPath
    """Where the engine finds them."""
    relative_path: PurePosixPath | None
    """The same below the model volume; None for `file:` sources, which are mounted for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChoice:
    """A pinned image and what is known of it."""

    reference: str
    command: tuple[str, ...]
    http_client: Literal["python3", "curl"]
    user: str | None
    """UID:GID; None: root."""
    user_reason: str
    origin: str
    """Declared key, or the source of the catalogue's row."""
    engine_version: str | None
    """None: an image of the operator's whose version is not declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The replicas of one pool (or, on a machine without containers, one of them)."""

    pool: str
    number: int
    """Of the replica, where each has a workload of its own; else 0."""
    engine: EngineKind
    model: str
    served_model: str
    role: Literal["prefill", "decode", "both"] | None
    """With disaggregation, its role; else None."""
    replicas: int
    nodes: int
    """Nodes of one replica."""
    gpus: int
    """GPUs of one replica, over all its nodes; 0: none."""
    image: ImageChoice
    args: tuple[str, ...]
    """After `image.command`."""
    env: tuple[EnvVar, ...]
    ports: tuple[Port, ...]
    """The first is "http"."""
    health: HealthPaths
    files: tuple[TextFile, ...]
    weights: tuple[Weights, ...]
    """The model's first, then a draft's."""
    scratch_dirs: tuple[PurePosixPath, ...]
    """Folders that must exist and be writable, empty at the start."""
    shm_bytes: int | None
    """Private /dev/shm; None: the host's IPC namespace."""
    stop_s: float
    """Drain bound: SIGTERM to SIGKILL."""
    load_timeout_s: float
    expected_load_s: float
    placement: Placement
    notes: tuple[str, ...]
    """What declared values became for this engine."""

    @property
    def http_port(self) -> int:
        return self.ports[0].number

    @property
    def gpus_per_node(self) -> int:
        return -(-self.gpus // self.nodes)

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self.image.command, *self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFile:
    """A file with a secret that the gateway reads: the declaration's ${file:PATH}, or a key or certificate."""

    name: str
    """Plain, unique: for mounts and Secret keys."""
    origin: str
    """Declared key."""
    host_path: str
    """As declared, absolute where the declaration says so."""
    path: PurePosixPath
    """Where the gateway finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayWorkload:
    """The gateway: headrace itself, governing the rendered engines as remote endpoints."""

    image: str
    image_origin: str
    replicas: int
    listen_port: int
    control_port: int
    is_control_open: bool
    """The control port listens beyond the loopback address."""
    has_tls: bool
    user: str
    declaration_text: str
    """Its headrace.yaml."""
    secret_variables: tuple[str, ...]
    """Environment variables that the text refers to."""
    secret_files: tuple[SecretFile, ...]
    state_dir: PurePosixPath
    drain_s: float

    @property
    def health(self) -> HealthPaths:
        return HealthPaths(started="/health", ready="/ready", alive="/health")
