"""Names for the ids that travel through the system, so that one cannot be passed for another."""

from typing import NewType

RequestUid = NewType("RequestUid", str)
"""Our own id of one request, 32 hex digits; the ledger's key. Never the caller's `x-request-id`, which may repeat."""

TenantId = NewType("TenantId", str)
"""Name of a declared tenant."""

KeyId = NewType("KeyId", str)
"""Public part of an API key (`hr-<key id>-<secret>`): safe to log and to show."""

ModelName = NewType("ModelName", str)
"""Name of a declared model, as callers write it."""

PoolName = NewType("PoolName", str)
"""Name of a declared pool."""

EndpointId = NewType("EndpointId", str)
"""One addressable server: `<pool>/<replica>` for our own replicas, `<pool>/<host>:<port>` for remote ones."""
