"""What one simulated engine is: its dialect, its model and how it behaves. Values only."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from headrace.engines.simulated.faults import Fault
from headrace.simulation.model import EngineModel


class DialectKind(StrEnum):
    """Whose language the engine speaks."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    """trtllm-serve."""
    TRITON = "triton"
    """Triton Inference Server with its TensorRT-LLM backend."""
    LLAMACPP = "llamacpp"


class Role(StrEnum):
    """Which part of a request the engine does."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


class TransferLoss(StrEnum):
    """What a lost KV transfer means. Source: vLLM's `kv_load_failure_policy`."""

    FAIL = "fail"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One simulated engine."""

    dialect: DialectKind
    served_model: str
    engine: EngineModel
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    time_scale: float = 1.0
    """Simulated seconds per real second: 1 is real time, 10 ten times as fast."""
    load_s: float = 0.0
    """Real seconds from start until it is ready."""
    request_overhead_s: float = 0.0
    """What a request costs outside the engine's steps, once, before its first token. Source: a calibration file."""
    answer_tokens: tuple[int, int] = (32, 256)
    """Shortest and longest answer that ends by itself."""
    is_numbered: bool = False
    """Answers count their tokens (" 0", " 1", ...) instead of speaking, and end only at a limit."""
    has_metrics: bool = True
    """vLLM and llama.cpp of headrace always; SGLang and TensorRT-LLM only where switched on."""
    reports_cached_tokens: bool = True
    """`--enable-prompt-tokens-details` of vLLM, `--enable-cache-report` of SGLang."""
    has_guided_decoding: bool = True
    """TensorRT-LLM without `guided_decoding_backend` ignores response_format."""
    has_tool_parser: bool = True
    shutdown_timeout_s: float = 0.0
    """vLLM's `--shutdown-timeout`: 0 cuts streams on SIGTERM."""
    answers_while_loading: bool = False
    """The newest trtllm-serve answers 503 `starting`; others refuse connections."""
    version: str = "simulated"
    """What it says to be, so that by default nobody takes it for a real one."""
    kv_cache_dtype: str = "auto"
    """What it says of its KV's number format; its size is the engine model's."""
    tensor: int = 1
    pipeline: int = 1
    role: Role = Role.BOTH
    transfer_loss: TransferLoss = TransferLoss.FAIL
    bootstrap_port: int | None = None
    """SGLang's `--disaggregation-bootstrap-port`, of a prefill engine."""
    slot_dir: Path | None = None
    """llama.cpp's `--slot-save-path`."""
    serves_embeddings: bool = False
    """The model makes embeddings; servers of models that generate refuse to."""
    embedding_dimensions: int = 384
    kv_events: str | None = None
    """`--kv-events-config` of vLLM and SGLang, JSON; anything where TensorRT-LLM keeps events; None: it tells none."""
    seed: int = 0
    faults: tuple[Fault, ...] = field(default_factory=tuple)

    @property
    def context_tokens(self) -> int:
        return self.engine.bounds.context_tokens

    @property
    def max_sequences(self) -> int:
        return self.engine.bounds.max_sequences
