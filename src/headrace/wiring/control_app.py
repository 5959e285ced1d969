"""Joins the control API to the running instance."""

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.database.connect import Database
from headrace.tenancy.key_store import KeyStore
from headrace.wiring.operations import InstanceOperations


def make_control_app(operations: InstanceOperations, keys: KeyStore, database: Database) -> ASGIApp:
    async def status(_: Request) -> Response:
        return Response(msgspec.json.encode(await operations.status()), media_type="application/json")

    async def reload(request: Request) -> Response:
        report = await operations.reload(
            is_dry_run=request.query_params.get("dry_run") == "true",
            is_upgrade=request.query_params.get("upgrade") == "true",
        )
        return Response(msgspec.json.encode(report), media_type="application/json")

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(await operations.metrics_text())

    return Starlette(
        routes=[Route("/status", status), Route("/reload", reload, methods=["POST"]), Route("/metrics", metrics)]
    )
