"""Routes about organisations, tenants and their projects. Who owns an entry, file or API, is in every answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_json, read_body
from headrace.control_api.context import ControlContext
from headrace.control_api.expectation import expected_version
from headrace.control_api.query import read_flag
from headrace.domain.errors import ErrorCode, RequestError
from headrace.tenancy.governing import EntryView
from headrace.tenancy.overlay import EntryKind

RouteCall = Callable[[Request, ControlContext], Awaitable[Response]]


class CreateEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /api/v1/tenants and /api/v1/organisations."""

    name: str
    section: dict[str, Any] = {}
    """As headrace.yaml has it."""


class ChangeEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of PATCH: merged into the section, null takes a key out (RFC 7396)."""

    section: dict[str, Any]


class SuspendEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST .../suspend and .../resume."""

    project: str | None = None
    """Only this project of the tenant."""
    reason: str = ""


def list_entries(kind: EntryKind) -> RouteCall:
    """All of one kind; a role scoped to a tenant sees its own."""

    async def call(_request: Request, context: ControlContext) -> Response:
        views = await asyncio.to_thread(lambda: context.governor.list_entries(kind, only=context.tenant))
        return answer_json(kind.section, views)

    return call


def create_entry(kind: EntryKind) -> RouteCall:
    """Make one that the API owns; with ?dry_run=true, only say what would come of it."""

    async def call(request: Request, context: ControlContext) -> Response:
        wish, is_dry_run = await read_body(request, CreateEntry), read_flag(request, "dry_run")
        view = await asyncio.to_thread(
            lambda: context.governor.create(kind, wish.name, wish.section, by=context.principal, is_dry_run=is_dry_run)
        )
        return await _answer_change(view, context, is_dry_run=is_dry_run, status=200 if is_dry_run else 201)

    return call


def show_entry(kind: EntryKind) -> RouteCall:
    """One, with its version in `etag`."""

    async def call(request: Request, context: ControlContext) -> Response:
        name = _name(request, context)
        return _answer(await asyncio.to_thread(lambda: context.governor.get_entry(kind, name)))

    return call


def change_entry(kind: EntryKind) -> RouteCall:
    """Change one that the API owns; with `if-match`, only where nobody else has in between."""

    async def call(request: Request, context: ControlContext) -> Response:
        name, wish = _name(request, context), await read_body(request, ChangeEntry)
        is_dry_run, version = read_flag(request, "dry_run"), expected_version(request)
        view = await asyncio.to_thread(
            lambda: context.governor.change(
                kind, name, wish.section, by=context.principal, expected_version=version, is_dry_run=is_dry_run
            )
        )
        return await _answer_change(view, context, is_dry_run=is_dry_run)

    return call


def delete_entry(kind: EntryKind) -> RouteCall:
    """Forget one that the API owns; ?revoke_keys=true ends its keys with it."""

    async def call(request: Request, context: ControlContext) -> Response:
        name, revokes = _name(request, context), read_flag(request, "revoke_keys")
        view = await asyncio.to_thread(
            lambda: context.governor.delete(kind, name, by=context.principal, revokes_keys=revokes)
        )
        return await _answer_change(view, context, is_dry_run=False)

    return call


def suspend_entry(kind: EntryKind) -> RouteCall:
    """Refuse its new requests, whoever owns it; what runs is finished."""

    async def call(request: Request, context: ControlContext) -> Response:
        name, wish = _name(request, context), await read_body(request, SuspendEntry)
        view = await asyncio.to_thread(
            lambda: context.governor.suspend(kind, name, project=wish.project, reason=wish.reason, by=context.principal)
        )
        return await _answer_change(view, context, is_dry_run=False)

    return call


def resume_entry(kind: EntryKind) -> RouteCall:
    """Take its requests again."""

    async def call(request: Request, context: ControlContext) -> Response:
        name, wish = _name(request, context), await read_body(request, SuspendEntry)
        view = await asyncio.to_thread(
            lambda: context.governor.resume(kind, name, project=wish.project, by=context.principal)
        )
        return await _answer_change(view, context, is_dry_run=False)

    return call


def _name(request: Request, context: ControlContext) -> str:
    """The name in the path. For a role scoped to a tenant, every other name is that of nothing."""
    name = request.path_params["name"]
    if context.tenant is not None and name != context.tenant:
        raise RequestError(ErrorCode.ROUTE_NOT_FOUND, f'there is no tenant "{name[:128]}"')
    return name


async def _answer_change(view: EntryView, context: ControlContext, *, is_dry_run: bool, status: int = 200) -> Response:
    if not is_dry_run:
        await context.operations.callers_changed()
    return _answer(view, status=status)


def _answer(view: EntryView, *, status: int = 200) -> Response:
    response = answer_json(view.kind.value, view, status=status)
    if view.version is not None:
        response.headers["etag"] = f'"{view.version}"'
    return response
