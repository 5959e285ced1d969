"""The SGLang driver: what it says and understands; `launch.py` starts it. Source: SGLang 0.5.23, run on CPU."""

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
from headrace.engines.sglang.dialect import DIALECT
from headrace.engines.sglang.errors import translate_error
from headrace.engines.sglang.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.sglang.metrics import METRICS


class SglangDriver:
    """See `contract.Driver`."""

    kind = EngineKind.SGLANG
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/ready"
    """200 or 503 without generating. `/health` generates a token, so that a busy engine looks dead there."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. Versions that have no `/ready` answer 404: they serve, and cannot say more cheaply."""
        return judge(reply, is_path_optional=True)

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
