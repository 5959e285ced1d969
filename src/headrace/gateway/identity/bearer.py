"""Who sends a request: the holder of a key, of an identity provider's token, or whom a gateway in front has named.

A key comes as `Authorization: Bearer hr-...`, or as `x-api-key` as Anthropic's clients send it; a token as
`Authorization: Bearer eyJ...`.
"""

from collections.abc import Mapping

import msgspec

from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.batch import Submitter
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.request import RequestClass
from headrace.domain.tenant import Caller, KeyRecord, Scope
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.identity.core.claims import VerifiedToken
from headrace.gateway.identity.tokens import KNOWN_TOKENS, TokenDesk
from headrace.gateway.identity.trusted_headers import TrustedHeaders
from headrace.tenancy.callers import CallerMaker
from headrace.tenancy.keys import KeyRing

_CLASSES = {one.value: one for one in RequestClass}
_NamedBy = tuple[str, str, str, str | None, str | None]


class Identity:
    """Keys, issuers and tenants as they are now; replaced whole when one of them changes.

    `desk`: the issuers' tokens, where issuers are declared; `trusted`: where a gateway in front is believed.
    """

    def __init__(
        self,
        ring: KeyRing,
        tenancy: TenancyPlan,
        desk: TokenDesk | None = None,
        trusted: TrustedHeaders | None = None,
    ) -> None:
        self._ring = ring
        self._maker = CallerMaker(tenancy)
        self._callers: dict[KeyId, Caller] = {}
        self._named: dict[_NamedBy, Caller] = {}
        self._desk = desk
        self._trusted = trusted

    def identify(self, exchange: Exchange, now_at: float) -> Caller:
        """Return the caller. Raises: RequestError UNAUTHENTICATED, FORBIDDEN, SUSPENDED or IDENTITY_UNAVAILABLE."""
        headers = exchange.headers
        if self._trusted is not None and exchange.connection is not None:
            named = self._trusted.find(headers, exchange.connection.peer, exchange.connection.repeated)
            if named is not None:
                return self._caller_named(named)
        given = headers.get(b"authorization", b"")
        token = given[7:].strip() if given[:7] == b"Bearer " else _token(headers)
        if self._desk is not None and token[:3] == b"eyJ":  # `{"` in base64: a JWT begins so, a key never does
            return self._caller_named(self._desk.read(token, now_at))
        record = self._ring.find(token, now_at)
        if record is None:
            raise RequestError(ErrorCode.UNAUTHENTICATED, "the key is unknown, revoked or expired")
        return self._callers.get(record.key_id) or self._make_caller(record)

    def identify_submitter(self, submitter: Submitter, now_at: float) -> Caller:
        """Return who has submitted a batch, by the rules of now. Raises: as `identify`."""
        if submitter.is_key:
            record = self._ring.find_by_id(submitter.key_id, now_at)
            if record is None:
                raise RequestError(ErrorCode.UNAUTHENTICATED, f"key {submitter.key_id} is revoked or expired")
            return self._callers.get(record.key_id) or self._make_caller(record)
        return self._maker.make(
            tenant=TenantId(submitter.tenant), key_id=KeyId(submitter.key_id), project=submitter.project
        )

    def find_refused(self, exchange: Exchange) -> Caller | None:
        """Return who sends a request that `identify` has refused, where that is certain; for log and ledger alone."""
        try:
            named = self._find_named(exchange)
            given = exchange.headers.get(b"authorization", b"")
            token = given[7:].strip() if given[:7] == b"Bearer " else b"" if named else _token(exchange.headers)
        except RequestError:
            return None
        if named is None and self._desk is not None and token[:3] == b"eyJ":
            named = self._desk.find_known(token)
        if named is not None:
            key_id = KeyId(f"{named.issuer}:{named.subject}")
            return self._maker.make_refused(tenant=TenantId(named.tenant), key_id=key_id, project=named.project)
        record = self._ring.find_holder(token)
        if record is None:
            return None
        return self._maker.make_refused(tenant=record.tenant, key_id=record.key_id, project=record.project)

    def _find_named(self, exchange: Exchange) -> VerifiedToken | None:
        connection = exchange.connection
        if self._trusted is None or connection is None:
            return None
        return self._trusted.find(exchange.headers, connection.peer, connection.repeated)

    def refused_submitter(self, submitter: Submitter) -> Caller:
        """The same for who has submitted a batch."""
        return self._maker.make_refused(
            tenant=TenantId(submitter.tenant), key_id=KeyId(submitter.key_id), project=submitter.project
        )

    def stand_in(self, tenant: str) -> Caller:
        """Anybody of a tenant, to say what would become of a request. Raises: RequestError FORBIDDEN or SUSPENDED."""
        return self._maker.make(tenant=TenantId(tenant), key_id=KeyId(""))

    def submitter_of(self, caller: Caller) -> Submitter:
        """What must be kept of `caller` to find it again."""
        return Submitter(
            tenant=caller.tenant,
            key_id=caller.key_id,
            project=caller.project,
            is_key=self._ring.find_by_id(caller.key_id, 0.0) is not None,
        )

    def is_admin(self, token: bytes, now_at: float) -> bool:
        """Whether `token` is an admin key in force that reaches further than one tenant."""
        record = self._ring.find(token, now_at)
        grant = None if record is None or record.suspended_at is not None else record.grant
        return grant is not None and grant.is_global

    def _make_caller(self, record: KeyRecord) -> Caller:
        if record.scope is not Scope.INFERENCE:
            message = "this is an admin key, which serves the control API only; use an inference key"
            raise RequestError(ErrorCode.FORBIDDEN, message)
        if record.suspended_at is not None:
            raise RequestError(
                ErrorCode.SUSPENDED, f"key {record.key_id} is suspended; ask the operator", is_final=True
            )
        caller = self._maker.make(
            tenant=record.tenant,
            key_id=record.key_id,
            project=record.project,
            models=None if record.allowed_models is None else frozenset(record.allowed_models),
            limits=record.limits,
        )
        self._callers[record.key_id] = caller
        return caller

    def _caller_named(self, named: VerifiedToken) -> Caller:
        """The caller that a token or a trusted header names; the same object as long as the rules are the same."""
        key: _NamedBy = (named.issuer, named.subject, named.tenant, named.project, named.request_class)
        caller = self._named.get(key)
        if caller is None:
            caller = self._maker.make(
                tenant=TenantId(named.tenant), key_id=KeyId(f"{named.issuer}:{named.subject}"), project=named.project
            )
            wanted = _CLASSES.get(named.request_class or "")
            if wanted in caller.classes:
                caller = msgspec.structs.replace(caller, default_class=wanted)
            if len(self._named) >= KNOWN_TOKENS:
                self._named.clear()
            self._named[key] = caller
        return caller


def _token(headers: Mapping[bytes, bytes]) -> bytes:
    """The key where it does not come in the usual words."""
    given = headers.get(b"authorization")
    if given is not None:
        scheme, _, token = given.partition(b" ")
        if scheme.lower() == b"bearer" and token:
            return token.strip()
        message = "the authorization header must be `Bearer hr-...`"
    elif (api_key := headers.get(b"x-api-key")) is not None:
        return api_key
    else:
        message = "no key was given; send `Authorization: Bearer hr-...`"
    raise RequestError(ErrorCode.UNAUTHENTICATED, message)
