"""The TensorRT-LLM driver: what it says and understands; `launch.py` starts it. Read from its sources, never run."""

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply, ProbeVerdict
from headrace.engines.probes import judge
from headrace.engines.tensorrt_llm.dialect import DIALECT
from headrace.engines.tensorrt_llm.errors import translate_error
from headrace.engines.tensorrt_llm.launch import EMITTED, OPTIONS, check, launch
from headrace.engines.tensorrt_llm.metrics import METRICS

_GONE = b"LLM is unavailable"
"""Source: `health` in tensorrt_llm/serve/openai_server.py; it stays so for ever (NVIDIA/TensorRT-LLM#18663)."""


class TensorrtLlmDriver:
    """See `contract.Driver`."""

    kind = EngineKind.TENSORRT_LLM
    dialect = DIALECT
    metrics = METRICS
    ready_path = "/health"
    """200 or 503 without generating; newer versions answer every path with 503 `starting` while they load."""

    emitted_flags = EMITTED
    options = OPTIONS
    translate_error = staticmethod(translate_error)
    check_options = staticmethod(check)
    launch = staticmethod(launch)

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. 503 while it starts has `starting`; with these words its executor is gone for good."""
        if reply.status == 503 and _GONE in reply.body:
            return ProbeVerdict.DEAD
        return judge(reply)
