"""Recognises the key of a request: `Authorization: Bearer hr-...`, or `x-api-key` as Anthropic's clients send it."""

from collections.abc import Mapping

from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId
from headrace.domain.tenant import Caller, KeyRecord, Scope
from headrace.tenancy.callers import CallerMaker
from headrace.tenancy.keys import KeyRing


class Identity:
    """Keys and tenants as they are now; replaced whole when either changes. Pure."""

    def __init__(self, ring: KeyRing, tenancy: TenancyPlan) -> None:
        self._ring = ring
        self._maker = CallerMaker(tenancy)
        self._callers: dict[KeyId, Caller] = {}

    def identify(self, headers: Mapping[bytes, bytes], now_at: float) -> Caller:
        """Return the caller. Raises: RequestError UNAUTHENTICATED or FORBIDDEN."""
        given = headers.get(b"authorization", b"")
        token = given[7:].strip() if given[:7] == b"Bearer " else _token(headers)
        record = self._ring.find(token, now_at)
        if record is None:
            raise RequestError(ErrorCode.UNAUTHENTICATED, "the key is unknown, revoked or expired")
        return self._callers.get(record.key_id) or self._make_caller(record)

    def _make_caller(self, record: KeyRecord) -> Caller:
        if record.scope is not Scope.INFERENCE:
            message = "this is an admin key, which serves the control API only; use an inference key"
            raise RequestError(ErrorCode.FORBIDDEN, message)
        caller = self._maker.make(
            tenant=record.tenant,
            key_id=record.key_id,
            project=record.project,
            models=None if record.allowed_models is None else frozenset(record.allowed_models),
            limits=record.limits,
        )
        self._callers[record.key_id] = caller
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
