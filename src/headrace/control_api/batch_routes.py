"""Routes about files and batches: what there is and how far it is, never a content. A scoped role sees its tenant's."""

from starlette.requests import Request
from starlette.responses import Response

from headrace.batch.look import READ_ROWS
from headrace.control_api.answers import answer_json
from headrace.control_api.context import ControlContext
from headrace.control_api.query import find_number, read_flag
from headrace.control_api.usage_routes import asked_tenant


async def list_batches(request: Request, context: ControlContext) -> Response:
    """The latest first. `tenant`: only its own; `open=true`: only those that are not over."""
    limit = find_number(request, "limit", low=1, high=READ_ROWS) or 100
    tenant, is_open = asked_tenant(request, context), read_flag(request, "open")
    return answer_json("batches", await context.operations.batches(tenant=tenant, is_open=is_open, limit=limit))


async def list_files(request: Request, context: ControlContext) -> Response:
    """The latest first. `tenant`: only its own."""
    limit = find_number(request, "limit", low=1, high=READ_ROWS) or 100
    return answer_json("files", await context.operations.files(tenant=asked_tenant(request, context), limit=limit))
