"""`If-Match`: a change is made only to the version that its author has seen. Source: RFC 9110, section 13.1.1.

A version that is no longer there is answered 409, with both numbers, as every conflict of the control API.
"""

import re

from starlette.requests import Request

from headrace.domain.errors import ErrorCode, RequestError

_TAG = re.compile(r'"(\d{1,15})"')


def expected_version(request: Request) -> int | None:
    """The version in `If-Match`; None: any. Raises: RequestError."""
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    found = _TAG.fullmatch(given.strip())
    if found is None:
        message = 'if-match must be one etag of an earlier answer, such as "3"'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param="if-match")
    return int(found[1])
