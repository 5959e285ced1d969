"""The paths that are served, and no others."""

import re
from types import MappingProxyType

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect


class Route(msgspec.Struct, frozen=True):
    """One served path."""

    path: str
    methods: tuple[bytes, ...]
    dialect: ApiDialect | None = None
    """The API spoken there; None for paths that headrace answers itself."""
    needs_key: bool = True
    is_stored: bool = False
    """Files and batches: the batch process answers."""
    path_bytes: bytes = b""
    """`path` for the wire; filled in from it."""
    dialect_name: str | None = None
    """`dialect` for ledger and log; filled in from it, as a member's value is dear to read."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "path_bytes", self.path.encode("ascii"))
        msgspec.structs.force_setattr(self, "dialect_name", self.dialect.value if self.dialect else None)


ROUTES = MappingProxyType(
    {
        b"/v1/chat/completions": Route("/v1/chat/completions", (b"POST",), ApiDialect.CHAT_COMPLETIONS),
        b"/v1/completions": Route("/v1/completions", (b"POST",), ApiDialect.COMPLETIONS),
        b"/v1/embeddings": Route("/v1/embeddings", (b"POST",), ApiDialect.EMBEDDINGS),
        b"/v1/responses": Route("/v1/responses", (b"POST",), ApiDialect.RESPONSES),
        b"/v1/messages": Route("/v1/messages", (b"POST",), ApiDialect.MESSAGES),
        b"/v1/models": Route("/v1/models", (b"GET", b"HEAD")),
        b"/v1/files": Route("/v1/files", (b"GET", b"POST"), is_stored=True),
        b"/v1/batches": Route("/v1/batches", (b"GET", b"POST"), is_stored=True),
        b"/health": Route("/health", (b"GET", b"HEAD"), needs_key=False),
        b"/ready": Route("/ready", (b"GET", b"HEAD"), needs_key=False),
    }
)
ONE_MODEL = Route("/v1/models/{id}", (b"GET", b"HEAD"))
STORED = (
    (re.compile(rb"/v1/files/[^/]+"), Route("/v1/files/{id}", (b"GET", b"DELETE"), is_stored=True)),
    (re.compile(rb"/v1/files/[^/]+/content"), Route("/v1/files/{id}/content", (b"GET",), is_stored=True)),
    (re.compile(rb"/v1/batches/[^/]+"), Route("/v1/batches/{id}", (b"GET",), is_stored=True)),
    (re.compile(rb"/v1/batches/[^/]+/cancel"), Route("/v1/batches/{id}/cancel", (b"POST",), is_stored=True)),
)


def find_route(path: bytes) -> Route | None:
    """Return the route of `path`, or None."""
    route = ROUTES.get(path)
    if route is None and path.startswith(b"/v1/models/") and len(path) > len(b"/v1/models/"):
        return ONE_MODEL
    if route is None and path.startswith((b"/v1/files/", b"/v1/batches/")):
        return next((found for pattern, found in STORED if pattern.fullmatch(path)), None)
    return route


def refusal_of(route: Route | None, method: bytes) -> RequestError | None:
    """Say why this method and path are not served; None where they are."""
    if route is None:
        served = ", ".join(route.path for route in ROUTES.values())
        return RequestError(ErrorCode.ROUTE_NOT_FOUND, f"no such path; served are {served}, {ONE_MODEL.path}")
    if method not in route.methods and method != b"OPTIONS":
        allow = ", ".join(method.decode() for method in (*route.methods, b"OPTIONS"))
        return RequestError(ErrorCode.METHOD_NOT_ALLOWED, f"{route.path} answers {allow}", allow=allow)
    return None
