"""Facts of one machine and of one model's files, as far as they could be seen. None: not known."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.declaration.model import Model, Pool
from headrace.sizing.architecture import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU, as `nvidia-smi` says."""

    index: int
    name: str
    total_bytes: int
    used_bytes: int
    capability: int | None
    """10 * major + minor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBuild:
    """An installed engine."""

    version: str
    cuda: tuple[int, int] | None
    """The CUDA version it was built for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Where models are kept."""

    path: str
    free_bytes: int
    filesystem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine."""

    gpus: tuple[GpuFacts, ...] = ()
    has_gpu_tools: bool = False
    """There is an `nvidia-smi`, or a GPU device: where no GPU was listed, the driver does not answer."""
    is_captured: bool = False
    """Another machine, the one that is to run the pools."""
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver runs."""
    links: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """How two GPUs are joined: NV18, PIX, PXB, PHB, NODE or SYS."""
    numa: Mapping[int, str] = field(default_factory=dict[int, str])
    """NUMA node of each GPU."""
    memory_bytes: int | None = None
    """Of the host, available without swapping."""
    shm_bytes: int | None = None
    open_files: int | None = None
    locked_bytes: int | None = None
    """-1: unlimited."""
    disk: Disk | None = None
    ports: frozenset[int] | None = None
    """On which somebody listens."""
    interfaces: Mapping[str, bool] | None = None
    """Network interface -> is it up."""
    rdma: tuple[str, ...] | None = None
    runtimes: frozenset[str] | None = None
    """Container runtimes: docker, podman, nvidia."""
    clock_offset_s: float | None = None
    is_clock_synchronized: bool | None = None
    engines: Mapping[str, EngineBuild] = field(default_factory=dict[str, EngineBuild])
    """By the engine's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is on this machine of one model."""

    path: str
    is_here: bool
    files: Mapping[str, int] = field(default_factory=dict[str, int])
    """Relative path -> bytes."""
    architecture: Architecture | None = None
    unread: str = ""
    """Why there is no architecture."""
    shards: tuple[str, ...] = ()
    """Files that the index names."""
    total_bytes: int | None = None
    """What the index says that the weights take."""
    sha256: str | None = None
    """Of a single file."""
    has_own_template: bool = False
    has_remote_code: bool = False
    engine_built_on: str | None = None
    """GPU for which a TensorRT engine in the folder was built."""

    @property
    def weight_bytes(self) -> int | None:
        """Size of the weights as they lie here."""
        sizes = [size for name, size in self.files.items() if name.endswith((".safetensors", ".gguf", ".bin"))]
        return sum(sizes) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool that headrace would run here, resolved."""

    name: str
    pool: Pool
    model: Model
    """As its engine reads it."""
    repository: str
    """The model's name on the Hub where it has one, else its declared name."""
    facts: ModelFacts

    @property
    def tensor(self) -> int:
        return self.pool.options.parallel.tensor

    @property
    def devices(self) -> int:
        return self.pool.options.parallel.devices
