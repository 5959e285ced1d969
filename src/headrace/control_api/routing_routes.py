"""Routes about the gateway's choices: where a request would go, how often prompts are found cached, and whether
prefill and decode apart pay.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_json, read_body
from headrace.control_api.context import ControlContext
from headrace.domain.request import RequestClass
from headrace.domain.worker import ExplainRoute

REQUEST_BYTES = 33_554_432
"""Largest request that is explained: a body of the default `gateway.limits.body_bytes` fits, as JSON inside JSON."""


class ExplainWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /api/v1/route/explain."""

    body: str
    """The request's body, as a caller would send it."""
    path: str = "/v1/chat/completions"
    tenant: str = ""
    request_class: RequestClass | None = None
    """None: standard."""


async def show_cache(_request: Request, context: ControlContext) -> Response:
    """Prefix cache hits by model, tenant, family of prompts and endpoint."""
    return answer_json("cache", await context.operations.routing())


async def show_misses(_request: Request, context: ControlContext) -> Response:
    """Why prompts that begin alike were not found cached: cause, place, tokens lost, advice."""
    return answer_json("cache-misses", await context.operations.misses())


async def show_advice(_request: Request, context: ControlContext) -> Response:
    """Prefill and decode apart: measured load, the ratio that it wants, whether splitting pays, what to change."""
    return answer_json("route-advise", await context.operations.split_advice())


async def explain_route(request: Request, context: ControlContext) -> Response:
    """Candidates, what filtered whom, each cost's parts, the pick. Nothing is sent."""
    wish = await read_body(request, ExplainWish, limit_bytes=REQUEST_BYTES)
    request_class = None if wish.request_class is None else wish.request_class.value
    command = ExplainRoute(path=wish.path, body=wish.body, tenant=wish.tenant, request_class=request_class)
    return answer_json("route", await context.operations.explain_route(command))
