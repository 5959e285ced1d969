"""Headers of a gateway in front: believed from declared addresses, taken away from all others."""

import pytest

from headrace.declaration.identity_plan import TrustedPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.identity.trusted_headers import TrustedHeaders

PLAN = TrustedPlan(
    addresses=("10.1.0.0/16", "127.0.0.1", "2001:db8::/32"),
    tenant_header="X-Team",
    project_header="x-project",
    subject_header="x-user",
)


def headers(**more: bytes) -> dict[bytes, bytes]:
    return {b"x-team": b"search", b"host": b"h", **{name.replace("_", "-").encode(): v for name, v in more.items()}}


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.1.255.255", "::ffff:10.1.2.3", "2001:db8::1"])
def test_a_declared_address_is_believed(peer):
    """IPv4 over an IPv6 socket is the same address."""
    named = TrustedHeaders(PLAN).find(headers(x_project=b"web", x_user=b"ada"), peer, ())
    assert named is not None
    assert (named.tenant, named.project, named.subject) == ("search", "web", "ada")


@pytest.mark.parametrize("peer", ["127.0.0.2", "10.2.0.0", "::1", "2001:db9::1", "", "nonsense", "::ffff:10.2.0.1"])
def test_other_addresses_lose_their_headers(peer):
    """No later step can mistake them for the gateway's word."""
    given = headers(x_project=b"web", x_user=b"ada")
    assert TrustedHeaders(PLAN).find(given, peer, ()) is None
    assert given == {b"host": b"h"}


def test_without_a_tenant_the_key_decides():
    """The gateway in front may let keys through."""
    assert TrustedHeaders(PLAN).find({b"x-user": b"ada"}, "127.0.0.1", ()) is None


def test_the_subject_is_the_address_where_none_is_given():
    """The ledger has a name in any case."""
    named = TrustedHeaders(PLAN).find(headers(), "127.0.0.1", ())
    assert named is not None
    assert named.subject == "127.0.0.1"


def test_a_header_given_twice_is_refused():
    """One of the two may be what the caller itself had sent through the gateway in front."""
    with pytest.raises(RequestError, match="given twice") as caught:
        TrustedHeaders(PLAN).find(headers(), "127.0.0.1", [b"x-team"])
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize("value", [b"\xff", b"x" * 129, b"a\tb"])
def test_a_header_that_is_no_name_is_refused(value):
    """Nothing unprintable gets into ledger and logs."""
    with pytest.raises(RequestError, match="printable"):
        TrustedHeaders(PLAN).find({b"x-team": value}, "127.0.0.1", ())
