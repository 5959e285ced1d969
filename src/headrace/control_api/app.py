"""The control API as an ASGI application: HTTP for operators, on its own port and the instance's Unix socket."""

import secrets
import traceback
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from headrace.control_api.access import NOBODY, Access, AdminGate, check_access, local_owner
from headrace.control_api.answers import answer_error
from headrace.control_api.context import ControlContext
from headrace.control_api.operations import Operations
from headrace.control_api.routes import ROUTES, ControlRoute
from headrace.database.connect import Database
from headrace.database.url import DatabaseError
from headrace.domain.admin import Principal
from headrace.domain.clock import Clock
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.operator_error import OperatorError
from headrace.tenancy.conflict import ConflictError, ManagedByFileError
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.governing import EntryNotFoundError
from headrace.tenancy.key_store import KeyNotFoundError, KeyStore
from headrace.tenancy.keys import hide_secrets

_log = structlog.get_logger("headrace.control_api")


def create_app(
    operations: Operations, database: Database, keys: KeyStore, clock: Clock, *, is_local: bool
) -> Starlette:
    """Make the application for one listener.

    `is_local`: it listens on the instance's own Unix socket, which only its user can open, so that no key is asked for.
    """
    context = ControlContext(
        operations=operations,
        database=database,
        keys=keys,
        entries=EntryStore(database, clock),
        gate=AdminGate(keys, clock),
        clock=clock,
    )
    methods: defaultdict[str, dict[str, ControlRoute]] = defaultdict(dict)
    for route in ROUTES:
        methods[route.path][route.method] = route
    return Starlette(
        routes=[Route(path, _Path(by_method, context, is_local)) for path, by_method in methods.items()],
        exception_handlers={HTTPException: _answer_unknown},
    )


@dataclass(frozen=True, slots=True)
class _Path:
    """ASGI endpoint of one path, all methods."""

    by_method: Mapping[str, ControlRoute]
    context: ControlContext
    is_local: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        principal = NOBODY
        try:
            route = _get_route(self.by_method, request)
            principal = await self._identify(route, request)
            check_access(route.access, is_scoped=route.is_scoped, principal=principal)
            return await route.call(request, replace(self.context, principal=principal))
        except RequestError as error:
            return answer_error(error)
        except OperatorError as error:
            return answer_error(_translate(error, request.url.path, principal))
        except Exception as error:  # noqa: BLE001 # the boundary of one control request
            return answer_error(_report_bug(error, request.url.path))

    async def _identify(self, route: ControlRoute, request: Request) -> Principal:
        if self.is_local:
            return local_owner(request.client.host if request.client else None)
        if route.access is Access.PUBLIC:
            return NOBODY
        return await self.context.gate.identify(request.headers.get("authorization"))


def _translate(error: OperatorError, path: str, principal: Principal) -> RequestError:
    """Put what an operator can mend into the one error table's words; where the database is, only some are told."""
    if isinstance(error, DatabaseError):
        if principal is NOBODY or principal.grant.tenant is not None:
            _log.warning("database_unavailable", path=hide_secrets(path), reason=str(error))
            said = "the database cannot be used at the moment; the reason is in headrace's log"
            return RequestError(ErrorCode.DATABASE_UNAVAILABLE, said)
        return RequestError(ErrorCode.DATABASE_UNAVAILABLE, str(error))
    if isinstance(error, ManagedByFileError):
        return RequestError(ErrorCode.CONFLICT, str(error), figures={"line": error.line} if error.line else None)
    if isinstance(error, ConflictError):
        return RequestError(ErrorCode.CONFLICT, str(error))
    if isinstance(error, KeyNotFoundError | EntryNotFoundError):
        return RequestError(ErrorCode.ROUTE_NOT_FOUND, str(error))
    return RequestError(ErrorCode.INVALID_REQUEST, str(error))


def _get_route(by_method: Mapping[str, ControlRoute], request: Request) -> ControlRoute:
    method = "GET" if request.method == "HEAD" else request.method
    if method in by_method:
        return by_method[method]
    allow = ", ".join(sorted(by_method))
    raise RequestError(
        ErrorCode.METHOD_NOT_ALLOWED,
        f"{request.method} {request.url.path} is not served; use {allow}",
        allow=allow,
    )


def _report_bug(error: Exception, path: str) -> RequestError:
    error_id = secrets.token_hex(8)
    # formatted here: a log renderer that shows local variables would show keys
    trace = "".join(traceback.format_exception(error))
    _log.error("control_request_failed", error_id=error_id, path=hide_secrets(path), traceback=hide_secrets(trace))
    return RequestError(ErrorCode.INTERNAL_BUG, f"headrace failed; error id {error_id} is in its log")


async def _answer_unknown(request: Request, _error: Exception) -> Response:
    paths = ", ".join(sorted({route.path for route in ROUTES}))
    said = f"{request.url.path} is not served; there are {paths}"
    return answer_error(RequestError(ErrorCode.ROUTE_NOT_FOUND, said))
