"""The table of control routes: the only list of them, each with who may use it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from headrace.control_api import audit_routes as audit
from headrace.control_api import batch_routes as batches
from headrace.control_api import entry_routes as entries
from headrace.control_api import instance_routes as instance
from headrace.control_api import key_routes as keys
from headrace.control_api import routing_routes as routing
from headrace.control_api import usage_routes as usage
from headrace.control_api.access import Access
from headrace.control_api.context import ControlContext
from headrace.tenancy.overlay import EntryKind

RouteCall = Callable[[Request, ControlContext], Awaitable[Response]]
_TENANT, _ORGANISATION = EntryKind.TENANT, EntryKind.ORGANISATION


@dataclass(frozen=True, slots=True)
class ControlRoute:
    """One method of one path."""

    method: str
    path: str
    access: Access
    call: RouteCall
    is_scoped: bool = False
    """A role that is scoped to a tenant may use it, and is shown its own part."""


ROUTES: tuple[ControlRoute, ...] = (
    ControlRoute("GET", "/health", Access.PUBLIC, instance.show_health),
    ControlRoute("GET", "/ready", Access.PUBLIC, instance.show_ready),
    ControlRoute("GET", "/metrics", Access.PUBLIC, instance.show_metrics),
    ControlRoute("GET", "/api/v1/status", Access.VIEWER, instance.show_status),
    ControlRoute("POST", "/api/v1/reload", Access.OPERATOR, instance.reload),
    ControlRoute("GET", "/api/v1/models", Access.VIEWER, instance.show_models),
    ControlRoute("GET", "/api/v1/queue", Access.VIEWER, instance.show_queues),
    ControlRoute("GET", "/api/v1/cache", Access.VIEWER, routing.show_cache),
    ControlRoute("GET", "/api/v1/cache/misses", Access.VIEWER, routing.show_misses),
    ControlRoute("POST", "/api/v1/route/explain", Access.VIEWER, routing.explain_route),
    ControlRoute("GET", "/api/v1/route/advice", Access.VIEWER, routing.show_advice),
    ControlRoute("GET", "/api/v1/endpoints", Access.VIEWER, instance.show_endpoints),
    ControlRoute("POST", "/api/v1/replicas/{replica:path}/restart", Access.OPERATOR, instance.restart_replica),
    ControlRoute("GET", "/api/v1/usage", Access.VIEWER, usage.show_usage, is_scoped=True),
    ControlRoute("GET", "/api/v1/requests", Access.VIEWER, usage.show_requests, is_scoped=True),
    ControlRoute("GET", "/api/v1/quota", Access.VIEWER, usage.show_quota, is_scoped=True),
    ControlRoute("GET", "/api/v1/budget", Access.VIEWER, usage.show_budget, is_scoped=True),
    ControlRoute("GET", "/api/v1/batches", Access.VIEWER, batches.list_batches, is_scoped=True),
    ControlRoute("GET", "/api/v1/files", Access.VIEWER, batches.list_files, is_scoped=True),
    ControlRoute("GET", "/api/v1/audit", Access.VIEWER, audit.show_audit, is_scoped=True),
    ControlRoute("GET", "/api/v1/keys", Access.VIEWER, keys.list_keys, is_scoped=True),
    ControlRoute("POST", "/api/v1/keys", Access.OPERATOR, keys.create_key, is_scoped=True),
    ControlRoute("GET", "/api/v1/keys/{key_id}", Access.VIEWER, keys.show_key, is_scoped=True),
    ControlRoute("PATCH", "/api/v1/keys/{key_id}", Access.OPERATOR, keys.change_key, is_scoped=True),
    ControlRoute("DELETE", "/api/v1/keys/{key_id}", Access.OPERATOR, keys.revoke_key, is_scoped=True),
    ControlRoute("POST", "/api/v1/keys/{key_id}/suspend", Access.OPERATOR, keys.suspend_key, is_scoped=True),
    ControlRoute("POST", "/api/v1/keys/{key_id}/resume", Access.OPERATOR, keys.resume_key, is_scoped=True),
    ControlRoute("POST", "/api/v1/callers-changed", Access.OPERATOR, keys.note_change),
    ControlRoute("GET", "/api/v1/tenants", Access.VIEWER, entries.list_entries(_TENANT), is_scoped=True),
    ControlRoute("POST", "/api/v1/tenants", Access.OWNER, entries.create_entry(_TENANT)),
    ControlRoute("POST", "/api/v1/tenants/{name:path}/suspend", Access.OPERATOR, entries.suspend_entry(_TENANT)),
    ControlRoute("POST", "/api/v1/tenants/{name:path}/resume", Access.OPERATOR, entries.resume_entry(_TENANT)),
    ControlRoute("GET", "/api/v1/tenants/{name:path}", Access.VIEWER, entries.show_entry(_TENANT), is_scoped=True),
    ControlRoute("PATCH", "/api/v1/tenants/{name:path}", Access.OWNER, entries.change_entry(_TENANT)),
    ControlRoute("DELETE", "/api/v1/tenants/{name:path}", Access.OWNER, entries.delete_entry(_TENANT)),
    ControlRoute("GET", "/api/v1/organisations", Access.VIEWER, entries.list_entries(_ORGANISATION)),
    ControlRoute("POST", "/api/v1/organisations", Access.OWNER, entries.create_entry(_ORGANISATION)),
    ControlRoute(
        "POST", "/api/v1/organisations/{name:path}/suspend", Access.OPERATOR, entries.suspend_entry(_ORGANISATION)
    ),
    ControlRoute(
        "POST", "/api/v1/organisations/{name:path}/resume", Access.OPERATOR, entries.resume_entry(_ORGANISATION)
    ),
    ControlRoute("GET", "/api/v1/organisations/{name:path}", Access.VIEWER, entries.show_entry(_ORGANISATION)),
    ControlRoute("PATCH", "/api/v1/organisations/{name:path}", Access.OWNER, entries.change_entry(_ORGANISATION)),
    ControlRoute("DELETE", "/api/v1/organisations/{name:path}", Access.OWNER, entries.delete_entry(_ORGANISATION)),
)
