"""The table of control routes: the only list of them, each with who may use it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api import instance_routes as instance
from headrace.control_api import tenancy_routes as tenancy
from headrace.control_api.access import Access
from headrace.control_api.context import ControlContext

RouteCall = Callable[[Request, ControlContext], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ControlRoute:
    """One method of one path."""

    method: str
    path: str
    access: Access
    call: RouteCall


ROUTES: tuple[ControlRoute, ...] = (
    ControlRoute("GET", "/health", Access.PUBLIC, instance.show_health),
    ControlRoute("GET", "/ready", Access.PUBLIC, instance.show_ready),
    ControlRoute("GET", "/metrics", Access.PUBLIC, instance.show_metrics),
    ControlRoute("GET", "/api/v1/status", Access.ADMIN, instance.show_status),
    ControlRoute("POST", "/api/v1/reload", Access.ADMIN, instance.reload),
    ControlRoute("GET", "/api/v1/models", Access.ADMIN, instance.show_models),
    ControlRoute("GET", "/api/v1/endpoints", Access.ADMIN, instance.show_endpoints),
    ControlRoute("POST", "/api/v1/replicas/{replica:path}/restart", Access.ADMIN, instance.restart_replica),
    ControlRoute("GET", "/api/v1/tenants", Access.ADMIN, tenancy.show_tenants),
    ControlRoute("GET", "/api/v1/usage", Access.ADMIN, tenancy.show_usage),
    ControlRoute("GET", "/api/v1/keys", Access.ADMIN, tenancy.list_keys),
    ControlRoute("POST", "/api/v1/keys", Access.ADMIN, tenancy.create_key),
    ControlRoute("GET", "/api/v1/keys/{key_id}", Access.ADMIN, tenancy.show_key),
    ControlRoute("PATCH", "/api/v1/keys/{key_id}", Access.ADMIN, tenancy.expire_key),
    ControlRoute("DELETE", "/api/v1/keys/{key_id}", Access.ADMIN, tenancy.revoke_key),
    ControlRoute("POST", "/api/v1/keys-changed", Access.ADMIN, tenancy.note_key_change),
)
