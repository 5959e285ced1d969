"""The llama.cpp driver: what it says and understands; how it is started is in `launch.py`."""

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply, ProbeVerdict
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

    emitted_flags = EMITTED
    options = OPTIONS
    translate_error = staticmethod(translate_error)
    check_options = staticmethod(check)
    launch = staticmethod(launch)

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        return judge(reply)
