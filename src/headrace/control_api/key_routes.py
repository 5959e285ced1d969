"""Routes about keys. The one answer that holds a key is that to its creation.

A role scoped to a tenant sees and touches that tenant's keys; those of operators only where they reach no further.
"""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_json, read_body
from headrace.control_api.context import ControlContext
from headrace.control_api.expectation import expected_version
from headrace.domain.admin import OWNER_OF_ALL, Grant, Role
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.key_store import KeyChange, KeyNotFoundError
from headrace.tenancy.key_view import view_key
from headrace.tenancy.key_wish import check_key_wish, expiry, read_limits


class CreateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /api/v1/keys."""

    tenant: str
    scope: Scope = Scope.INFERENCE
    project: str | None = None
    models: tuple[str, ...] | None = None
    """None: every model of the tenant."""
    name: str = ""
    expires_in_s: float | None = None
    """None: never."""
    limits: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    role: Role | None = None
    """Of an admin key; None: owner."""
    only_tenant: bool = False
    """An admin key reaches only its tenant."""


class ChangeKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of PATCH /api/v1/keys/{key_id}: what is left out stays."""

    expires_in_s: float | msgspec.UnsetType | None = msgspec.UNSET
    """From now; None: never."""
    name: str | msgspec.UnsetType = msgspec.UNSET
    models: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET
    project: str | msgspec.UnsetType | None = msgspec.UNSET
    limits: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """With `budget`, replaces both whole."""
    budget: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


async def list_keys(_request: Request, context: ControlContext) -> Response:
    """All keys, ended ones too."""
    records = await asyncio.to_thread(context.keys.list_keys)
    grants = await asyncio.to_thread(context.keys.read_grants)
    now = context.clock.wall_at()
    seen = [record for record in records if _is_visible(record, grants.get(record.key_id), context)]
    return answer_json("keys", [view_key(record, now, grants.get(record.key_id)) for record in seen])


async def create_key(request: Request, context: ControlContext) -> Response:
    """Make a key; its clear text is in this answer and nowhere else."""
    wish = await read_body(request, CreateKey)
    if context.tenant is not None and wish.tenant != context.tenant:
        raise RequestError(ErrorCode.FORBIDDEN, "keys can be made for your own tenant only")
    tenant = check_key_wish(
        context.operations.declaration(),
        tenant=wish.tenant,
        scope=wish.scope,
        models=wish.models,
        name=wish.name,
        project=wish.project,
    )
    grant = _grant_of(wish, tenant, context)
    expires_at = expiry(context.clock.wall_at(), wish.expires_in_s)
    limits = read_limits(wish.limits, wish.budget)
    clear_text, record = await asyncio.to_thread(
        lambda: context.keys.create_key(
            tenant=tenant,
            scope=wish.scope,
            name=wish.name,
            allowed_models=wish.models,
            expires_at=expires_at,
            project=wish.project,
            limits=limits,
            grant=grant or OWNER_OF_ALL,
            by=context.principal,
        )
    )
    await context.operations.callers_changed()
    shown = view_key(record, context.clock.wall_at(), grant)
    return answer_json("key-created", {"key": clear_text, "record": shown}, status=201)


async def show_key(request: Request, context: ControlContext) -> Response:
    """One key; its version is in `etag`."""
    return await _answer_key(await _get_visible(request, context), context)


async def change_key(request: Request, context: ControlContext) -> Response:
    """Change what a key may do; with `if-match`, only where nobody else has in between."""
    record = await _get_touchable(request, context)
    wish = await read_body(request, ChangeKey)
    change = _change_of(wish, record, context)
    version = expected_version(request)
    changed = await asyncio.to_thread(
        lambda: context.keys.change_key(record.key_id, change, expected_version=version, by=context.principal)
    )
    await context.operations.callers_changed()
    return await _answer_key(changed, context)


async def revoke_key(request: Request, context: ControlContext) -> Response:
    """End a key for ever."""
    record = await _get_touchable(request, context)
    revoked = await asyncio.to_thread(lambda: context.keys.revoke_key(record.key_id, by=context.principal))
    await context.operations.callers_changed()
    return await _answer_key(revoked, context)


async def suspend_key(request: Request, context: ControlContext) -> Response:
    """Refuse a key until it is resumed."""
    record = await _get_touchable(request, context)
    suspended = await asyncio.to_thread(lambda: context.keys.suspend_key(record.key_id, by=context.principal))
    await context.operations.callers_changed()
    return await _answer_key(suspended, context)


async def resume_key(request: Request, context: ControlContext) -> Response:
    """Take a suspended key again."""
    record = await _get_touchable(request, context)
    resumed = await asyncio.to_thread(lambda: context.keys.resume_key(record.key_id, by=context.principal))
    await context.operations.callers_changed()
    return await _answer_key(resumed, context)


async def note_change(_request: Request, context: ControlContext) -> Response:
    """The command line has changed keys or tenants in the database: let the workers know now."""
    await context.operations.callers_changed()
    return answer_json("callers-changed", {})


def _grant_of(wish: CreateKey, tenant: TenantId, context: ControlContext) -> Grant | None:
    """What the new key may do; only an owner makes keys for operators, and none that reaches further than its own."""
    if wish.scope is not Scope.ADMIN:
        if wish.role is not None or wish.only_tenant:
            raise RequestError(ErrorCode.INVALID_REQUEST, "role and only_tenant belong to keys of scope admin")
        return None
    if not context.principal.grant.role.includes(Role.OWNER):
        raise RequestError(ErrorCode.FORBIDDEN, "only an owner makes admin keys")
    is_narrow = wish.only_tenant or context.tenant is not None
    return Grant(role=wish.role or Role.OWNER, tenant=tenant if is_narrow else None)


def _change_of(wish: ChangeKey, record: KeyRecord, context: ControlContext) -> KeyChange:
    given = {name: one for name, one in msgspec.structs.asdict(wish).items() if one is not msgspec.UNSET}
    models, project = given.get("models", record.allowed_models), given.get("project", record.project)
    name = given.get("name", record.name)
    if given.keys() & {"models", "project", "name"}:
        check_key_wish(
            context.operations.declaration(),
            tenant=record.tenant,
            scope=record.scope,
            models=models,
            name=name,
            project=project,
        )
    is_limited = "limits" in given or "budget" in given
    return KeyChange(
        name=name,
        allowed_models=models,
        project=project,
        expires_at=expiry(context.clock.wall_at(), wish.expires_in_s)
        if wish.expires_in_s is not msgspec.UNSET
        else msgspec.UNSET,
        limits=read_limits(given.get("limits", {}), given.get("budget", {})) if is_limited else msgspec.UNSET,
    )


def _is_visible(record: KeyRecord, grant: Grant | None, context: ControlContext) -> bool:
    if context.tenant is None:
        return True
    if record.scope is Scope.ADMIN:
        return grant is not None and grant.tenant == context.tenant
    return record.tenant == context.tenant


async def _get_visible(request: Request, context: ControlContext) -> KeyRecord:
    """The key of the path. Raises: RequestError; what may not be seen is not there."""
    key_id = KeyId(request.path_params["key_id"])
    try:
        record = await asyncio.to_thread(lambda: context.keys.get_key(key_id))
    except KeyNotFoundError as error:
        raise _not_found(key_id) if context.tenant is not None else error from error
    grants = await asyncio.to_thread(context.keys.read_grants)
    if not _is_visible(record, grants.get(record.key_id), context):
        raise _not_found(key_id)
    return record


async def _get_touchable(request: Request, context: ControlContext) -> KeyRecord:
    """The key of the path, where it may be changed: keys of operators are an owner's business."""
    record = await _get_visible(request, context)
    if record.scope is Scope.ADMIN and not context.principal.grant.role.includes(Role.OWNER):
        raise RequestError(ErrorCode.FORBIDDEN, "only an owner changes admin keys")
    return record


def _not_found(key_id: str) -> RequestError:
    shown = key_id.removeprefix("hr-")[:10]  # never more: it might be a whole key
    return RequestError(ErrorCode.ROUTE_NOT_FOUND, f'there is no key with the id "{shown}"')


async def _answer_key(record: KeyRecord, context: ControlContext) -> Response:
    grants = await asyncio.to_thread(context.keys.read_grants)
    shown = view_key(record, context.clock.wall_at(), grants.get(record.key_id))
    response = answer_json("key", shown)
    response.headers["etag"] = f'"{record.version}"'
    return response
