"""Routes about the running instance: probes, metrics, status, reload, models, endpoints."""

import asyncio

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api.answers import answer_error, answer_json, answer_text, read_body
from headrace.control_api.context import ControlContext
from headrace.control_api.operations import ReloadReport
from headrace.database.url import DatabaseError
from headrace.declaration.load import BUILTIN_NAME
from headrace.domain.errors import ErrorCode, RequestError
from headrace.tenancy.audit import AuditChange, append_audit

log = structlog.get_logger("headrace.control_api")

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Source: Prometheus' text exposition format 0.0.4."""


class ReloadWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /api/v1/reload."""

    dry_run: bool = False
    """Say what would change, and change nothing."""
    upgrade: bool = False
    """Replace the gateway workers by the installed version, too."""


async def show_health(_request: Request, _context: ControlContext) -> Response:
    """The supervisor answers: nothing more is said."""
    return answer_text("ok\n")


async def show_ready(_request: Request, context: ControlContext) -> Response:
    """200 once a pool can answer requests, 503 before and while draining."""
    if await context.operations.is_ready():
        return answer_text("ready\n")
    return answer_error(
        RequestError(ErrorCode.NO_READY_ENDPOINT, "no pool can answer a request yet; headrace status says why")
    )


async def show_metrics(_request: Request, context: ControlContext) -> Response:
    """All processes' metrics, for Prometheus."""
    return answer_text(await context.operations.metrics_text(), media_type=METRICS_TYPE)


async def show_status(_request: Request, context: ControlContext) -> Response:
    """What everything is doing."""
    return answer_json("status", await context.operations.status())


async def show_models(_request: Request, context: ControlContext) -> Response:
    """The declared models and whether they can be called."""
    return answer_json("models", (await context.operations.status()).models)


async def show_queues(_request: Request, context: ControlContext) -> Response:
    """Who waits for which model, since when and why, over all gateway workers."""
    return answer_json("queue", await context.operations.queues())


async def show_endpoints(_request: Request, context: ControlContext) -> Response:
    """Every endpoint over all gateway workers."""
    return answer_json("endpoints", (await context.operations.status()).endpoints)


async def reload(request: Request, context: ControlContext) -> Response:
    """Read the declaration again; an invalid one changes nothing, answers 400 and says why."""
    wish = await read_body(request, ReloadWish)
    report = await context.operations.reload(is_dry_run=wish.dry_run, is_upgrade=wish.upgrade)
    if report.ok and not report.is_dry_run:
        await _note_reload(report, context)
    return answer_json("reload", report, status=200 if report.ok else 400)


async def _note_reload(report: ReloadReport, context: ControlContext) -> None:
    """Say in the audit log who asked for it; what the file says of callers is noted by itself (`tenancy.declared`)."""
    config = context.operations.loaded().path
    change = AuditChange(
        action="instance.upgrade" if report.is_upgrade else "instance.reload",
        name=str(config) if config is not None else BUILTIN_NAME,
        tenant=None,
        after=report.changes,
    )
    await _note(change, context)


async def _note(change: AuditChange, context: ControlContext) -> None:
    """Append to the audit log; what was done stays done where that cannot be written now, and the log says so."""

    def append() -> None:
        with context.database.writing() as connection:
            append_audit(connection, context.principal, change, context.clock.wall_at())

    try:
        await asyncio.to_thread(append)
    except DatabaseError as error:
        log.error(
            "the audit log cannot be written", action=change.action, by=context.principal.subject, reason=str(error)
        )


async def restart_replica(request: Request, context: ControlContext) -> Response:
    """A fresh process for one replica, after what it has in work; 409 and why where that cannot be done now."""
    report = await context.operations.restart_replica(request.path_params["replica"])
    if report.is_accepted:
        await _note(AuditChange(action="replica.restart", name=report.replica, tenant=None), context)
    return answer_json("restart", report, status=200 if report.is_accepted else 409)
