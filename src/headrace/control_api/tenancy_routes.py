"""Routes about keys, tenants and usage. The one answer that holds a key is that to its creation."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_json, read_body
from headrace.control_api.context import ControlContext
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId
from headrace.domain.tenant import KeyRecord, Scope
from headrace.ledger.usage import DAY_S, UsageGroup, read_usage
from headrace.tenancy.key_store import KeyNotFoundError
from headrace.tenancy.key_view import view_key, view_tenants
from headrace.tenancy.key_wish import KeyWishError, check_key_wish, expiry

_Result = TypeVar("_Result")


class CreateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /api/v1/keys."""

    tenant: str
    scope: Scope = Scope.INFERENCE
    models: tuple[str, ...] | None = None
    """None: every model of the tenant."""
    name: str = ""
    expires_in_s: float | None = None
    """None: never."""


class ExpireKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of PATCH /api/v1/keys/{key_id}."""

    expires_in_s: float | None
    """From now; None: never."""


async def list_keys(_request: Request, context: ControlContext) -> Response:
    """All keys, ended ones too."""
    records = await asyncio.to_thread(context.keys.list_keys)
    now = context.clock.wall_at()
    return answer_json("keys", [view_key(record, now) for record in records])


async def create_key(request: Request, context: ControlContext) -> Response:
    """Make a key; its clear text is in this answer and nowhere else."""
    wish = await read_body(request, CreateKey)
    try:
        tenant = check_key_wish(
            context.operations.declaration(), tenant=wish.tenant, scope=wish.scope, models=wish.models, name=wish.name
        )
        expires_at = expiry(context.clock.wall_at(), wish.expires_in_s)
    except KeyWishError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
    clear_text, record = await asyncio.to_thread(
        lambda: context.keys.create_key(
            tenant=tenant, scope=wish.scope, name=wish.name, allowed_models=wish.models, expires_at=expires_at
        )
    )
    await context.operations.keys_changed()
    shown = view_key(record, context.clock.wall_at())
    return answer_json("key-created", {"key": clear_text, "record": shown}, status=201)


async def show_key(request: Request, context: ControlContext) -> Response:
    """One key."""
    key_id = _key_id(request)
    return _answer_key(await _found(lambda: context.keys.get_key(key_id)), context)


async def expire_key(request: Request, context: ControlContext) -> Response:
    """Set when a key ends by itself."""
    key_id = _key_id(request)
    wish = await read_body(request, ExpireKey)
    try:
        expires_at = expiry(context.clock.wall_at(), wish.expires_in_s)
    except KeyWishError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
    record = await _found(lambda: context.keys.expire_key(key_id, expires_at))
    await context.operations.keys_changed()
    return _answer_key(record, context)


async def revoke_key(request: Request, context: ControlContext) -> Response:
    """End a key for ever."""
    key_id = _key_id(request)
    record = await _found(lambda: context.keys.revoke_key(key_id))
    await context.operations.keys_changed()
    return _answer_key(record, context)


async def note_key_change(_request: Request, context: ControlContext) -> Response:
    """The command line has changed keys in the database: let the workers know now."""
    await context.operations.keys_changed()
    return answer_json("keys-changed", {})


async def show_tenants(_request: Request, context: ControlContext) -> Response:
    """The declared tenants, their limits and keys."""
    records = await asyncio.to_thread(context.keys.list_keys)
    return answer_json("tenants", view_tenants(context.operations.declaration(), records, context.clock.wall_at()))


async def show_usage(request: Request, context: ControlContext) -> Response:
    """Who used how much: `by` (tenant, model, day, key, endpoint), `since_at` and `until_at` in UTC epoch seconds."""
    until_at = _number(request, "until_at", context.clock.wall_at().timestamp())
    since_at = _number(request, "since_at", until_at - DAY_S)
    by = _group(request)
    report = await asyncio.to_thread(lambda: read_usage(context.database, since_at=since_at, until_at=until_at, by=by))
    return answer_json("usage", report)


def _group(request: Request) -> UsageGroup:
    named = request.query_params.get("by", UsageGroup.TENANT.value)
    try:
        return UsageGroup(named)
    except ValueError as error:
        message = f'by="{named[:40]}" is none of {", ".join(UsageGroup)}'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param="by") from error


def _number(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError as error:
        message = f'{name}="{text[:40]}" is no number (UTC epoch seconds)'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name) from error


def _key_id(request: Request) -> KeyId:
    return KeyId(request.path_params["key_id"])


async def _found(call: Callable[[], _Result]) -> _Result:
    try:
        return await asyncio.to_thread(call)
    except KeyNotFoundError as error:
        raise RequestError(ErrorCode.ROUTE_NOT_FOUND, str(error)) from error


def _answer_key(record: KeyRecord, context: ControlContext) -> Response:
    return answer_json("key", view_key(record, context.clock.wall_at()))
