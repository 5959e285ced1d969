"""What the control API answers with: versioned JSON as `headrace ... --json` prints it, or an error of the table."""

import asyncio
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headrace.domain.errors import ErrorCode, RequestError, error_body
from headrace.domain.undecodable import UNDECODABLE
from headrace.tenancy.keys import hide_secrets

BODY_BYTES = 65536
"""Largest request body; every body here is a few short fields."""

BODY_TIMEOUT_S = 10.0
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_Body = TypeVar("_Body", bound=msgspec.Struct)


def answer_json(schema: str, value: object, *, status: int = 200) -> Response:
    """`{"schema": "headrace/<schema>/v1", "data": value}`, the envelope of the command line."""
    body = msgspec.json.encode({"schema": f"headrace/{schema}/v1", "data": value})
    return Response(body, status_code=status, media_type="application/json", headers=_HEADERS)


def answer_text(text: str, *, status: int = 200, media_type: str = "text/plain; charset=utf-8") -> Response:
    """Plain text, for probes and Prometheus."""
    return Response(text, status_code=status, media_type=media_type, headers=_HEADERS)


def answer_error(error: RequestError) -> Response:
    """Render `error` as the inference API does."""
    error.message = hide_secrets(error.message)
    headers = dict(_HEADERS)
    if error.allow is not None:
        headers["allow"] = error.allow
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    if error.code is ErrorCode.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    return Response(
        error_body(error), status_code=error.spec.http_status, media_type="application/json", headers=headers
    )


async def read_body(request: Request, kind: type[_Body], *, limit_bytes: int = BODY_BYTES) -> _Body:
    """Read a JSON body within its bounds; an absent body is an empty object.

    Raises: RequestError.
    """
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > limit_bytes:
                    raise RequestError(ErrorCode.BODY_TOO_LARGE, f"the body is larger than {limit_bytes} bytes")
    except TimeoutError as error:
        raise RequestError(ErrorCode.REQUEST_TIMEOUT, f"no whole body within {BODY_TIMEOUT_S:g} s") from error
    except ClientDisconnect as error:
        raise RequestError(ErrorCode.CALLER_DISCONNECTED, "the caller left while sending the body") from error
    try:
        return msgspec.json.decode(bytes(content) or b"{}", type=kind)
    except UNDECODABLE as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the body is not as expected: {error}") from error
