"""How urgent a request is: what its headers say, else its tenant's own class."""

from collections.abc import Mapping

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import RequestClass
from headrace.domain.tenant import Caller

CLASS_HEADER = b"x-headrace-class"
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
