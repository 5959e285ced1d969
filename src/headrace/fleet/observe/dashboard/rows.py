"""The rows of the dashboard, top to bottom. The only list of them."""

from headrace.fleet.observe.dashboard import (
    caching,
    gateway,
    handovers,
    health,
    latency,
    load,
    resilience,
    tenants,
)
from headrace.fleet.observe.dashboard.panel import Row

ROWS: tuple[Row, ...] = (
    health.ROW, latency.ROW, load.ROW, tenants.ROW, caching.ROW, handovers.ROW, resilience.ROW, gateway.ROW,
)  # fmt: skip
