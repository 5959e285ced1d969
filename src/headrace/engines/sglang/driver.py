"""The SGLang driver: what it says and understands; `launch.py` starts it. Source: SGLang 0.5.23, run on CPU."""

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply, ProbeVerdict
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

    emitted_flags = EMITTED
    options = OPTIONS
    translate_error = staticmethod(translate_error)
    check_options = staticmethod(check)
    launch = staticmethod(launch)

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. Versions that have no `/ready` answer 404: they serve, and cannot say more cheaply."""
        return judge(reply, is_path_optional=True)
