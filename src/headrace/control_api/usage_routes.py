"""Routes about what was used: sums, single requests, limits and budgets. A role scoped to a tenant sees its own."""

import asyncio
from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_json
from headrace.control_api.context import ControlContext
from headrace.control_api.query import find_number, read_moment
from headrace.declaration.nearest import did_you_mean
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.quota import BUDGETS
from headrace.ledger.requests import READ_ROWS, read_requests
from headrace.ledger.usage import DAY_S, UsageFilter, UsageGroup, read_usage
from headrace.tenancy.overlay import projects_of
from headrace.tenancy.quota_view import LimitFilter, view_limits


async def show_usage(request: Request, context: ControlContext) -> Response:
    """Who used how much.

    `by`: one or more of organisation, tenant, project, key, model, endpoint, class, day, with commas; `since_at` and
    `until_at`: UTC epoch seconds; `tenant`, `project`, `model`, `key`: only these.
    """
    until_at = read_moment(request, "until_at", context.clock.wall_at().timestamp())
    since_at = read_moment(request, "since_at", until_at - DAY_S)
    by, only = _groups(request), _filter(request, context)
    report = await asyncio.to_thread(
        lambda: read_usage(context.database, since_at=since_at, until_at=until_at, by=by, only=only)
    )
    return answer_json("usage", report)


async def show_requests(request: Request, context: ControlContext) -> Response:
    """The newest requests first, as the ledger has them: never their content."""
    until_at = read_moment(request, "until_at", context.clock.wall_at().timestamp())
    since_at = read_moment(request, "since_at", until_at - DAY_S)
    limit, only = find_number(request, "limit", low=1, high=READ_ROWS) or 100, _filter(request, context)
    records = await asyncio.to_thread(
        lambda: read_requests(context.database, since_at=since_at, until_at=until_at, only=only, limit=limit)
    )
    return answer_json("requests", records)


async def show_quota(request: Request, context: ControlContext) -> Response:
    """Every limit of every level that may be seen: used, left, and when it is reset."""
    return await _answer_limits("quota", request, context, is_budget=False)


async def show_budget(request: Request, context: ControlContext) -> Response:
    """Budgets by day and month: spent, left, and whether 80 or 100 % are passed."""
    return await _answer_limits("budget", request, context, is_budget=True)


async def _answer_limits(schema: str, request: Request, context: ControlContext, *, is_budget: bool) -> Response:
    only = LimitFilter(
        tenant=asked_tenant(request, context),
        project=request.query_params.get("project"),
        key_id=request.query_params.get("key"),
        is_scoped=context.tenant is not None,
    )
    declaration = context.operations.declaration()
    keys = {
        str(record.key_id): record
        for record in await asyncio.to_thread(context.keys.list_keys)
        if context.tenant in (None, record.tenant)
    }
    if not only.is_scoped:  # the hint names others
        _check_named("tenant", only.tenant, {*declaration.tenants, *(key.tenant for key in keys.values())})
    _check_named("project", only.project, projects_of(declaration, only.tenant))
    _check_named("key", only.key_id, keys)
    statuses = [one for one in await context.operations.quota() if (one.unit in BUDGETS) == is_budget]
    return answer_json(schema, view_limits(statuses, declaration, keys, only))


def _check_named(kind: str, name: str | None, known: Collection[str]) -> None:
    if name is not None and name not in known:
        message = f'there is no {kind} "{name[:128]}". {did_you_mean(name, sorted(known))}'
        raise RequestError(ErrorCode.ROUTE_NOT_FOUND, message)


def _groups(request: Request) -> tuple[UsageGroup, ...]:
    named = request.query_params.get("by", UsageGroup.TENANT.value)
    try:
        groups = tuple(dict.fromkeys(UsageGroup(part) for part in named.split(",")))
    except ValueError as error:
        wrong = next(part for part in named.split(",") if part not in {*UsageGroup})
        message = f'usage is not summed up by "{wrong[:80]}". {did_you_mean(wrong, [*UsageGroup])}'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param="by") from error
    return groups


def _filter(request: Request, context: ControlContext) -> UsageFilter:
    return UsageFilter(
        tenant=asked_tenant(request, context),
        project=request.query_params.get("project"),
        model=request.query_params.get("model"),
        key_id=request.query_params.get("key"),
    )


def asked_tenant(request: Request, context: ControlContext) -> str | None:
    """The tenant that is asked for; a role scoped to one gets its own, and nothing else."""
    asked = request.query_params.get("tenant")
    if context.tenant is None:
        return asked
    if asked is not None and asked != context.tenant:
        raise RequestError(ErrorCode.ROUTE_NOT_FOUND, f'there is no tenant "{asked[:128]}"')
    return context.tenant
