"""A value of a caller's body, decoded whole: what a first look has skipped over may turn out to be unreadable."""

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.undecodable import UNDECODABLE


def decoded_value(raw: msgspec.Raw, field: str) -> object:
    """Raises: RequestError INVALID_REQUEST naming `field`, the top-level field that the value stands in."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the body is nested too deeply", param=field) from None
    except UNDECODABLE as error:  # a number that no engine could hold, for one: skipping it over shows no fault
        message = f"field {field} cannot be read: {str(error)[:120]}"
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=field) from None
