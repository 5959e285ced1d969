"""The vLLM driver: what it says and understands; `launch.py` starts it. Source: vLLM 0.33.0; 0.32.0 run on CPU."""

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply, ProbeVerdict
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

    emitted_flags = EMITTED
    options = OPTIONS
    translate_error = staticmethod(translate_error)
    check_options = staticmethod(check)
    launch = staticmethod(launch)

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. vLLM listens only once it has loaded, so its 503 means a dead engine core."""
        if reply.status == 503:
            return ProbeVerdict.DEAD
        return judge(reply)
