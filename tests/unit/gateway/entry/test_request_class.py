"""Which class a request belongs to."""

import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.request import RequestClass
from headrace.domain.tenant import Caller
from headrace.gateway.entry.request_class import class_of

CALLER = Caller(tenant=TenantId("t"), key_id=KeyId("k"), models=None, default_class=RequestClass.OFFLINE)


def test_the_header_names_it_else_the_tenant() -> None:
    """`x-headrace-class` in any case, else the tenant's own class."""
    assert class_of({}, CALLER) is RequestClass.OFFLINE
    assert class_of({b"x-headrace-class": b"interactive"}, CALLER) is RequestClass.INTERACTIVE
    assert class_of({b"x-headrace-class": b" Standard "}, CALLER) is RequestClass.STANDARD


@pytest.mark.parametrize("named", [b"", b"urgent", b"\xff", b"interactive,offline"])
def test_what_is_no_class_is_refused(named: bytes) -> None:
    """Anything else is a 400 that names the classes."""
    with pytest.raises(RequestError, match="interactive, standard, offline") as refused:
        class_of({b"x-headrace-class": named}, CALLER)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
