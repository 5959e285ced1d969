"""The driver for any other server of OpenAI's API, a hosted one or an engine without a driver of its own."""

import re
from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.engines.answers import read_error, translate
from headrace.engines.contract import (
    Dialect,
    EmittedFlag,
    EngineError,
    EngineUnavailableError,
    Launch,
    OptionProblem,
    ProbeReply,
    ProbeVerdict,
    ReplicaSpec,
)
from headrace.engines.dialects import ALL_PATHS, OPENAI_OUTPUT_LIMITS, field_table
from headrace.engines.probes import judge

_TOO_LONG = (
    re.compile(r"maximum context length", re.IGNORECASE),
    re.compile(
        r"context (length|window|size)[^.]{0,40}exceed|exceed[^.]{0,40}context (length|window|size)", re.IGNORECASE
    ),
    re.compile(r"prompt is too long", re.IGNORECASE),
)
"""Source: OpenAI's and Anthropic's answers to over-long prompts."""

_NO_SUCH_PATH = 404

DIALECT = Dialect(
    paths=ALL_PATHS,
    fields=field_table(owned=("cache_salt", "id_slot", "kv_transfer_params", "priority")),
    output_limit_aliases=OPENAI_OUTPUT_LIMITS,
)
"""What the server is is not known, so neither are its fields: all but a few dangerous ones follow `unknown_fields`."""


class OpenaiDriver:
    """See `contract.Driver`."""

    kind = EngineKind.OPENAI
    dialect = DIALECT
    metrics = None
    ready_path = "/v1/models"
    """The one path of the API that costs nothing. 401 means that it is alive and wants other credentials."""

    def read_probe(self, reply: ProbeReply) -> ProbeVerdict:
        """See `contract.Driver`. A server without a list of models answers 404, and is alive."""
        if reply.status == _NO_SUCH_PATH:
            return ProbeVerdict.READY
        return judge(reply)

    def translate_error(self, status: int, body: bytes) -> EngineError:
        answer = read_error(status, body)
        if answer.fields.get("code") == "context_length_exceeded":
            return EngineError(code=ErrorCode.CONTEXT_TOO_LONG, message=answer.message, param=answer.param)
        return translate(answer, too_long=_TOO_LONG, engine="the server")

    emitted_flags: tuple[EmittedFlag, ...] = ()
    options: frozenset[str] = frozenset()

    def check_options(self, spec: ReplicaSpec) -> Iterator[OptionProblem]:
        """Nothing: a pool of this engine always has endpoints."""
        return iter(())

    def launch(self, spec: ReplicaSpec) -> Launch:
        raise EngineUnavailableError(
            "headrace attaches to servers of OpenAI's API and starts none: give the pool endpoints: [URL, ...]"
        )
