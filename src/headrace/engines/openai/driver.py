"""The driver for any other server of OpenAI's API, a hosted one or an engine without a driver of its own."""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import (
    EmittedFlag,
    EngineError,
    EngineUnavailableError,
    Launch,
    OptionProblem,
    ProbeReply,
    ProbeVerdict,
    ReplicaSpec,
)
from headrace.engines.openai.dialect import DIALECT
from headrace.engines.openai.errors import translate_error
from headrace.engines.probes import judge


class OpenaiDriver:
    """See `contract.Driver`."""

    kind = EngineKind.OPENAI
    dialect = DIALECT
    metrics = None
    ready_path = "/v1/models"
    """The one path of the API that costs nothing. 401 means that it is alive and wants other credentials."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. A server without a list of models answers 404, and is alive."""
        return judge(reply, is_path_optional=True)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        return translate_error(status, body)

    emitted_flags: tuple[EmittedFlag, ...] = ()
    options: frozenset[str] = frozenset()

    def check_options(self, spec: ReplicaSpec) -> Iterator[OptionProblem]:
        """Nothing: a pool of this engine always has endpoints."""
        return iter(())

    def launch(self, spec: ReplicaSpec) -> Launch:
        raise EngineUnavailableError(
            "headrace attaches to servers of OpenAI's API and starts none: give the pool endpoints: [URL, ...]"
        )
