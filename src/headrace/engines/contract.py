"""What headrace must know about an engine: the contract that every driver fulfils, free of I/O.

A driver is a package `engines/<engine>/` with `driver.py`. The supervisor (fleet/deploy) and the gateway do the I/O and
ask the driver what to do: how to start the engine, how to read its probes and errors, which fields it understands.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from headrace.declaration.engine_options import EngineOptions
from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.engines.continuation import NO_CONTINUATION, ContinuationRow
from headrace.engines.metrics import MetricTable
from headrace.engines.structured_output import ConstraintWriter, no_structured_output

EVENT_PORT_OFFSET = 10_000
"""From an engine's port to that of its KV events; one more for each further data-parallel rank, as engines count."""
REPLAY_PORT_OFFSET = 15_000
"""The same for asking again for events that were missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """One replica that headrace is to run: the declared pool, resolved for this machine."""

    pool: str
    replica: int
    """0-based number within the pool."""
    served_model: str
    model_path: Path
    """Complete, checked model file or folder."""
    host: str
    port: int
    context_tokens: int
    """Context of one sequence (not of all slots together)."""
    threads: int
    """CPU threads this replica may use, where it computes on the CPU."""
    embeddings: bool
    """Serve embeddings instead of generation."""
    slot_dir: Path
    """Where llama.cpp saves slots."""
    file_dir: Path
    """Where the files of its `Launch` go."""
    stop_s: float
    """Drain bound: what runs longer after SIGTERM is killed."""
    load_timeout_s: float = 600.0
    """Longest time it may take to become ready."""
    options: EngineOptions = field(default_factory=EngineOptions)
    """What the pool declares of its engine."""
    chat_template: str | None = None
    """Jinja text used instead of the model's own template."""
    draft_path: Path | None = None
    """Model folder of `options.speculative.model`."""
    trust_remote_code: bool = False
    weight_bytes: int | None = None
    """Size of all weights in device memory; None: not known."""

    @property
    def event_port(self) -> int:
        """Where KV events are published: derived, so that a supervisor that is replaced finds the same command."""
        return self.port + EVENT_PORT_OFFSET

    @property
    def event_endpoint(self) -> str:
        """The same for ZeroMQ."""
        return _listening_at(self.host, self.event_port)

    @property
    def replay_port(self) -> int:
        """Where events that were missed can be asked for."""
        return self.port + REPLAY_PORT_OFFSET

    @property
    def replay_endpoint(self) -> str:
        """The same for ZeroMQ."""
        return _listening_at(self.host, self.replay_port)

    @property
    def transfer_port(self) -> int:
        """Where prefill and decode replicas meet."""
        return self.port + 20000


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a replica's process."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Added to the supervisor's own environment."""
    description: str
    """One line for `headrace status`, such as "llama-server from PATH" or "xllamacpp 2026.10"."""
    files: Mapping[Path, str] = field(default_factory=dict[Path, str])
    """Files that the command names, to be written before it starts: text by absolute path."""
    notes: tuple[str, ...] = ()
    """What a declared value became for this engine, and why, where the two differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedFlag:
    """One flag that a driver can put on a command line. `headrace engine verify` looks it up in the engine's --help."""

    flag: str
    """As written, such as `--max-model-len`."""
    option: str
    """What it comes from: `pools.<name>.` or `models.<name>.` and a key; "headrace" for what headrace itself sets."""
    source: str
    """Where the fact was read: engine, version and file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionProblem:
    """Something declared that this engine cannot do, or not like this."""

    key: tuple[str | int, ...]
    """Within the pool, such as ("memory", "fraction")."""
    message: str
    hint: str | None = None
    lacks: str | None = None
    """The option that the engine lacks, by its dotted key; the engines that have it are then named beside `hint`."""


class ProbeVerdict(StrEnum):
    """What a probe's reply says about an endpoint."""

    READY = "ready"
    LOADING = "loading"
    BUSY = "busy"
    """Alive but too loaded to answer in time: never a reason to evict."""
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """What the shell saw when it asked: `status` None where no HTTP answer came."""

    status: int | None
    body: bytes = b""
    is_timeout: bool = False
    is_refused: bool = False
    detail: str = ""
    """Why no answer came, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineError:
    """An engine's error answer in our own words."""

    code: ErrorCode
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    figures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers for the error object: `prompt_tokens` and `context_tokens` of CONTEXT_TOO_LONG, as far as known."""
    is_out: bool = False
    """It takes no request of the model, whatever its readiness path says: it is shutting down, or has no such model."""
    is_unknown_model: bool = False
    """The latter: the operator has declared another name than the engine has."""


class FieldRule(StrEnum):
    """What happens to one request field of a caller (DESIGN section 4)."""

    SAFE = "safe"
    """Passed on untouched."""
    OWNED = "owned"
    """Set by the gateway alone: refused from callers."""
    GATED = "gated"
    """Passed only where the operator's policy allows the field by name."""
    SHAPED = "shaped"
    """Read by headrace and put into the engine's own words, or refused by name: structured output, continuation,
    template arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How an engine understands requests: which API paths it serves and what each body field means to it."""

    paths: frozenset[str]
    """Of `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses`, `/v1/messages`."""
    fields: Mapping[str, FieldRule]
    """Engine-specific fields, beside the ones that every OpenAI dialect has (`gateway/entry/field_policy.py`)."""
    output_limit_aliases: frozenset[str]
    """Top-level fields that bound the output, such as llama.cpp's `n_predict`."""
    supports_stream_usage: bool = True
    """Whether `stream_options.include_usage` is understood."""
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent with each request to the engine."""
    salted_paths: frozenset[str] = frozenset()
    """Where `cache_salt` keeps prompts with different salts apart in the prefix cache; empty where nothing does."""
    structured: ConstraintWriter = no_structured_output
    """Puts a constraint into the engine's own fields. Raises: CannotSayError."""
    enforces_structured_output: bool = True
    """False where the engine ignores constraints unless a backend for them is switched on, which must be declared."""
    continuation: ContinuationRow = NO_CONTINUATION
    """How the engine goes on with an answer that the caller began."""


class Driver(Protocol):
    """One engine, as headrace sees it. Stateless and pure; every method may be called from any process.

    Concurrency: none held; safe to share.
    """

    @property
    def kind(self) -> EngineKind: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def metrics(self) -> MetricTable | None:
        """Path and names of the engine's own metrics, by purpose; None where nothing is known of them."""
        ...

    @property
    def ready_path(self) -> str:
        """Cheap path that says whether requests may be routed here; must not take a scheduler slot."""
        ...

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """Judge the reply to GET `ready_path`."""
        ...

    def translate_error(self, status: int, body: bytes) -> EngineError:
        """Put an engine's error answer (status >= 400, or an in-band error event's JSON) into our codes.

        4xx that are the caller's fault become caller codes with the engine's message; the engine's own faults become
        ENGINE_REFUSED, which may fail over; one over-long prompt is CONTEXT_TOO_LONG whatever the engine calls it, and
        a path that it lacks ROUTE_NOT_FOUND.
        """
        ...

    @property
    def emitted_flags(self) -> tuple[EmittedFlag, ...]:
        """Every flag that `launch` can emit; empty for an engine that headrace never starts."""
        ...

    @property
    def options(self) -> frozenset[str]:
        """Dotted keys of `EngineOptions` that this engine has, such as `memory.fraction`."""
        ...

    def check_options(self, spec: ReplicaSpec) -> Iterator[OptionProblem]:
        """Yield what of `spec` this engine lacks or cannot do. Paths, ports and sizes in `spec` may be stand-ins."""
        ...

    def launch(self, spec: ReplicaSpec) -> Launch:
        """Give the command that starts `spec`; pure but for the search of programs.

        Raises: EngineUnavailableError where this engine cannot be started on this machine.
        """
        ...


class EngineUnavailableError(Exception):
    """The engine cannot be started here; the message says what is missing and how to get it."""


def _listening_at(host: str, port: int) -> str:
    """Return the ZeroMQ address at which an engine listens. vLLM and SGLang listen only where they see `*` or `::`, and
    connect to anything else (vllm/distributed/kv_events.py 0.32, sglang/srt/disaggregation/kv_events.py 0.5.23): one
    IPv4 address is written as mapped into IPv6, which ZeroMQ reads as the IPv4 address that it is."""
    if host == "0.0.0.0":  # noqa: S104 # compared, not bound
        return f"tcp://*:{port}"
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://[::ffff:{host}]:{port}"
