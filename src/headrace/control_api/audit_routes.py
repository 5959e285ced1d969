"""The audit log over HTTP: read only. A role scoped to a tenant sees what concerns that tenant."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_json
from headrace.control_api.context import ControlContext
from headrace.control_api.query import find_number, read_moment
from headrace.domain.errors import ErrorCode, RequestError
from headrace.tenancy.audit import READ_ROWS, read_audit


async def show_audit(request: Request, context: ControlContext) -> Response:
    """The newest changes first; `before_number` reads on where the last answer ended."""
    tenant = request.query_params.get("tenant")
    if context.tenant is not None:
        if tenant is not None and tenant != context.tenant:
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, f'there is no tenant "{tenant[:128]}"')
        tenant = context.tenant
    since_at = read_moment(request, "since_at", 0.0)
    limit = find_number(request, "limit", low=1, high=READ_ROWS) or 100
    before = find_number(request, "before_number", low=1, high=10**12)
    entries = await asyncio.to_thread(
        lambda: read_audit(context.database, tenant=tenant, since_at=since_at, before_number=before, limit=limit)
    )
    return answer_json("audit", entries)
