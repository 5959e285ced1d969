"""The vLLM driver: what it says and understands; `launch.py` starts it. Source: vLLM 0.33.0; 0.32.0 run on CPU."""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import (
    EmittedFlag,
    EngineError,
    Launch,
    OptionProblem,
    ProbeReply,
    ProbeVerdict,
    ReplicaSpec,
)
from headrace.engines.probes import judge
from headrace.engines.vllm.dialect import DIALECT
from headrace.engines.vllm.errors import translate_error
from headrace.engines.vllm.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.vllm.metrics import METRICS


class VllmDriver:
    """See `contract.Driver`."""

    kind = EngineKind.VLLM
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/health"
    """200 while the engine lives, 503 when it is dead; refused while it loads. Takes no scheduler slot."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. vLLM listens only once it has loaded, so its 503 means a dead engine core."""
        if reply.status == 503:
            return ProbeVerdict.DEAD
        return judge(reply)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        return translate_error(status, body)

    @property
    def emitted_flags(self) -> tuple[EmittedFlag, ...]:
        return EMITTED

    @property
    def options(self) -> frozenset[str]:
        return OPTIONS

    def check_options(self, spec: ReplicaSpec) -> Iterator[OptionProblem]:
        return check(spec)

    def launch(self, spec: ReplicaSpec) -> Launch:
        """See `contract.Driver` and `launch.py`."""
        return launch(spec)
