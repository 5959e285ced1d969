"""From a declared endpoint URL to a connection pool and request heads: TLS trust, client certificate, credentials."""

import asyncio
import ssl
from urllib.parse import urlsplit

from headrace.declaration.gateway_plan import EndpointAddress, PoolPlan
from headrace.engines.contract import Driver
from headrace.gateway.endpoints.endpoint import RequestHeads
from headrace.gateway.http.connection_pool import Address, ConnectionPool


class PlanError(Exception):
    """A plan cannot be adopted; the message says which value and why. Nothing has changed then."""


def make_tls_context(plan: PoolPlan) -> ssl.SSLContext:
    """Trust and client certificate for a pool's HTTPS endpoints. Raises: PlanError."""
    try:
        context = ssl.create_default_context(cafile=plan.tls_ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if plan.tls_certificate is not None:
            context.load_cert_chain(plan.tls_certificate, plan.tls_key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(path for path in (plan.tls_ca, plan.tls_certificate, plan.tls_key) if path)
        raise PlanError(f"pools.{plan.name}.tls: cannot use {files}: {error}") from error
    return context


def make_connections(
    address: EndpointAddress, plan: PoolPlan, tls: ssl.SSLContext | None, loop: asyncio.AbstractEventLoop
) -> ConnectionPool:
    """Make the (still empty) connection pool of one endpoint."""
    url = urlsplit(address.url)
    host = url.hostname or ""
    is_tls = url.scheme == "https"
    return ConnectionPool(
        Address(
            host=address.ip or host,
            port=url.port or (443 if is_tls else 80),
            tls=tls if is_tls else None,
            server_name=plan.tls_server_name or host,
            connect_timeout_s=plan.connect_timeout_s,
        ),
        loop,
    )


def make_request_heads(address: EndpointAddress, plan: PoolPlan, driver: Driver) -> RequestHeads:
    """Build the header lines that every request to this endpoint carries."""
    url = urlsplit(address.url)
    headers = {"host": url.netloc, "user-agent": "headrace", **driver.dialect.extra_headers, **plan.headers}
    if plan.bearer is not None:
        headers["authorization"] = f"Bearer {plan.bearer}"
    for name, value in headers.items():
        if not f"{name}{value}".isprintable() or ":" in name or " " in name:
            raise PlanError(f"pools.{plan.name}.credentials: header {name!r} has characters that HTTP does not allow")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return RequestHeads(prefix=url.path.rstrip("/").encode("ascii"), lines=lines.encode("latin-1"))
