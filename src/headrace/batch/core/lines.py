"""One line of a batch's input: what it must be, and why not.

Source: OpenAI's batch guide, "Preparing your batch file".
"""

from dataclasses import dataclass

import msgspec

from headrace.domain.undecodable import UNDECODABLE

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
"""Where lines may go. `/v1/messages` is left out: OpenAI's batches do not know it."""
CUSTOM_ID_CHARACTERS = 512
ERRORS_SHOWN = 20
"""Of one input file; whoever has more errors has one reason for them."""


class LineBody(msgspec.Struct):
    """The fields of a request that decide whether it can be a line."""

    model: str
    stream: bool | None = None


class Line(msgspec.Struct):
    """One line as it is written."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineError:
    """What is wrong with a line, in the words of a batch's `errors`."""

    code: str
    message: str
    line: int | None = None
    """Counted from 1."""
    param: str | None = None


class LineRefusedError(Exception):
    """A line cannot be sent; `problem` says why."""

    def __init__(self, problem: LineError) -> None:
        super().__init__(problem.message)
        self.problem = problem


_lines = msgspec.json.Decoder(Line)
_bodies = msgspec.json.Decoder(LineBody)


def read_line(text: bytes, number: int, endpoint: str) -> Line:
    """Return the line; `number` counts from 1. Raises: LineRefusedError."""
    try:
        line = _lines.decode(text)
        body = _bodies.decode(line.body)
    except msgspec.ValidationError as error:
        raise _refused("invalid_request", number, f"line {number}: {error}") from error
    except RecursionError as error:
        raise _refused("invalid_json_line", number, f"line {number} is nested too deeply") from error
    except UNDECODABLE as error:
        raise _refused("invalid_json_line", number, f"line {number} is not valid JSON: {error}") from error
    if not 1 <= len(line.custom_id) <= CUSTOM_ID_CHARACTERS:
        message = f"line {number}: custom_id must be a text of 1 to {CUSTOM_ID_CHARACTERS} characters"
        raise _refused("invalid_custom_id", number, message, "custom_id")
    if line.method != "POST":
        raise _refused("invalid_method", number, f"line {number}: method must be POST", "method")
    if line.url != endpoint:
        raise _refused("mismatched_url", number, f"line {number}: url must be the batch's endpoint, {endpoint}", "url")
    if body.stream:
        raise _refused("invalid_request", number, f"line {number}: a batch has no streams; leave out stream", "stream")
    return line


def _refused(code: str, number: int, message: str, param: str | None = None) -> LineRefusedError:
    return LineRefusedError(LineError(code=code, message=message, line=number, param=param))
