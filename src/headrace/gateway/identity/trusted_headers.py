"""Callers that another gateway in front of this one has identified: believed from declared addresses only."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from headrace.declaration.identity_plan import TrustedPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.identity.core.claims import SUBJECT_CHARACTERS, VerifiedToken

SOURCE = "trusted-headers"
KNOWN_ADDRESSES = 10_000
"""Judged addresses remembered; then all are judged anew."""
_FOREVER_AT = float("inf")


class TrustedHeaders:
    """Reads the declared headers. Concurrency: event loop only."""

    def __init__(self, plan: TrustedPlan) -> None:
        self._networks = [ip_network(text) for text in plan.addresses]
        self._tenant = plan.tenant_header.lower().encode("ascii")
        self._project = plan.project_header.lower().encode("ascii")
        self._subject = plan.subject_header.lower().encode("ascii")
        self._judged: dict[str, bool] = {}

    def find(self, headers: dict[bytes, bytes], peer: str, repeated: Sequence[bytes]) -> VerifiedToken | None:
        """Return whom the headers name; from an address that is not declared they are taken away, unread.

        Raises: RequestError UNAUTHENTICATED where a header is malformed or given twice (`repeated`).
        """
        if not self._is_trusted(peer):
            for name in (self._tenant, self._project, self._subject):
                headers.pop(name, None)
            return None
        for name in (self._tenant, self._project, self._subject):
            if name in repeated:  # one of them may be the caller's own, put there before the gateway added its word
                message = f"header {name.decode('ascii')} is given twice; the gateway in front must replace it"
                raise RequestError(ErrorCode.UNAUTHENTICATED, message)
        tenant = _text(headers, self._tenant)
        if tenant is None:
            return None
        return VerifiedToken(
            issuer=SOURCE,
            subject=_text(headers, self._subject) or peer,
            tenant=tenant,
            project=_text(headers, self._project),
            request_class=None,
            expires_at=_FOREVER_AT,
        )

    def _is_trusted(self, peer: str) -> bool:
        judged = self._judged.get(peer)
        if judged is None:
            if len(self._judged) >= KNOWN_ADDRESSES:
                self._judged.clear()
            address = _address(peer)
            judged = address is not None and any(address in network for network in self._networks)
            self._judged[peer] = judged
        return judged


def _address(peer: str) -> IPv4Address | IPv6Address | None:
    """The peer's address; an IPv4 one that came over an IPv6 socket as what it is."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    if not value:
        return None
    text = value.decode("utf-8", "replace")
    if len(text) > SUBJECT_CHARACTERS or not text.isprintable() or "\ufffd" in text:
        message = f"header {name.decode('ascii')} must be 1 to {SUBJECT_CHARACTERS} printable characters"
        raise RequestError(ErrorCode.UNAUTHENTICATED, message)
    return text
