"""What a request's headers say of how it waits: its class, and what others of its tenant it belongs to."""

from collections.abc import Mapping

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import RequestClass
from headrace.domain.tenant import Caller

CLASS_HEADER = b"x-headrace-class"
KEY_HEADERS = (b"x-headrace-conversation", b"idempotency-key")
"""Requests of one tenant with the same value of one of these wait on one another."""
KEY_BYTES = 128
"""Longer values are cut: they only need to tell conversations apart."""
_BY_NAME = {each.value.encode("ascii"): each for each in RequestClass}


def class_of(headers: Mapping[bytes, bytes], caller: Caller) -> RequestClass:
    """Return the class that the request names, else its tenant's.

    Whether the caller may use it is admission's question. Raises: RequestError INVALID_REQUEST where there is none.
    """
    named = headers.get(CLASS_HEADER)
    if named is None:
        return caller.default_class
    found = _BY_NAME.get(named.strip().lower())
    if found is None:
        message = f"{CLASS_HEADER.decode()} must be one of {', '.join(each.value for each in RequestClass)}"
        raise RequestError(ErrorCode.INVALID_REQUEST, message)
    return found


def waits_with(headers: Mapping[bytes, bytes]) -> str | None:
    """Return what the request has in common with those that wait on it; None: nothing."""
    for name in KEY_HEADERS:
        value = headers.get(name)
        if value:
            return value[:KEY_BYTES].decode("latin-1")
    return None
