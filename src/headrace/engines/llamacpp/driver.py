"""The llama.cpp driver: what it says and understands; how it is started is in `launch.py`."""

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
from headrace.engines.llamacpp.dialect import DIALECT
from headrace.engines.llamacpp.errors import translate_error
from headrace.engines.llamacpp.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.llamacpp.metrics import METRICS
from headrace.engines.probes import judge


class LlamacppDriver:
    """See `contract.Driver`."""

    kind = EngineKind.LLAMACPP
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/health"
    """503 `Loading model` until the model is loaded; takes no slot."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
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
