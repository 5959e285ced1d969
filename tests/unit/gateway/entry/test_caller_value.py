"""Values of a body that turn out to be unreadable are refused by their field's name."""

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.entry.caller_value import decoded_value


def test_a_readable_value_is_decoded() -> None:
    """Any JSON becomes what it is in Python."""
    assert decoded_value(msgspec.Raw(b'[1,{"a":"b"}]'), "input") == [1, {"a": "b"}]


@pytest.mark.parametrize("value", [b"[" * 5000 + b"]" * 5000, b"1e400", b'["\\ud83d"]'])
def test_an_unreadable_value_is_refused(value: bytes) -> None:
    """Nested too deeply, out of range or half a character: the caller's fault, with the field named."""
    with pytest.raises(RequestError) as refused:
        decoded_value(msgspec.Raw(value), "input")
    assert (refused.value.code, refused.value.param) == (ErrorCode.INVALID_REQUEST, "input")
