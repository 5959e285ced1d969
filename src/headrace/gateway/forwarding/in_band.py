"""The last event of a stream that failed after its head was out: an error the caller cannot take for success."""

import msgspec

from headrace.domain.errors import RequestError, error_body
from headrace.domain.request import ApiDialect


def error_event(error: RequestError, dialect: ApiDialect) -> bytes:
    """Render `error` as an event of the dialect; no end marker ever follows it."""
    if dialect is ApiDialect.RESPONSES:
        body = msgspec.json.encode(
            {"type": "error", "code": error.code.value, "message": error.message, "param": error.param}
        )
        return b"event: error\ndata: " + body + b"\n\n"
    if dialect is ApiDialect.MESSAGES:
        inner = {"type": "api_error", "message": error.message, "code": error.code.value}
        return b"event: error\ndata: " + msgspec.json.encode({"type": "error", "error": inner}) + b"\n\n"
    return b"data: " + error_body(error) + b"\n\n"
