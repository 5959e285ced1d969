"""Probes of engine pods, and the times around their end: derived from how long loading, draining and DNS take.

1. startup: first asked when loading is half expected to be over, then so often that a start is seen within a
   twentieth of it, until `load_timeout_s` is over. Nothing else is asked before it has succeeded.
2. readiness: the path by which the gateway itself probes; patient, since the gateway ejects sooner and knows more.
3. liveness: a path that takes no scheduler slot, and only minutes of silence count: a busy engine is never killed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from headrace.declaration.model import Declaration, Pool
from headrace.fleet.deploy.render.core.container_words import whole_s
from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.objects import Cluster, Tree

READY_PERIOD_S, READY_TIMEOUT_S, READY_FAILURES = 5, 10, 3
LIVE_PERIOD_S, LIVE_TIMEOUT_S, LIVE_FAILURES = 30, 30, 10
"""Chosen: five minutes without one answer. rllm-org/rllm#926 is what shorter ones do to a busy engine."""
LIVE_GRACE_S = 30
"""What does not answer does not drain either."""
STARTUP_PERIODS = 20
SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 2, 30
DNS_TTL_S = 5
"""Answers of a cluster's DNS live so long. Source: CoreDNS, kubernetes plugin, default ttl."""
PROPAGATION_S = 2
"""From a pod's deletion to the EndpointSlice without it, in general less. Assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """When a start is asked about."""

    delay_s: int
    period_s: int
    failures: int


def start_times(workload: Workload) -> StartTimes:
    """Spread the questions of the startup probe over the expected load and up to its bound."""
    delay_s = int(min(workload.expected_load_s / 2, workload.load_timeout_s / 2))
    period_s = int(min(max(workload.expected_load_s / STARTUP_PERIODS, SHORTEST_PERIOD_S), LONGEST_PERIOD_S))
    failures = max(1, math.ceil((workload.load_timeout_s - delay_s) / period_s))
    return StartTimes(delay_s=delay_s, period_s=period_s, failures=failures)


def http_get(path: str) -> Tree:
    return {"httpGet": {"path": path, "port": "http"}}


def probes_of(workload: Workload, ask: Callable[[str], Tree] = http_get) -> Tree:
    """Return the three probes of a pod that serves; `ask` says how a path is asked for."""
    start = start_times(workload)
    key = f"pools.{workload.pool}"
    return {
        "startupProbe": {
            **ask(workload.health.started),
            "initialDelaySeconds": Noted(
                start.delay_s, f"half of the expected load of {workload.expected_load_s:.0f} s"
            ),
            "periodSeconds": start.period_s,
            "timeoutSeconds": READY_TIMEOUT_S,
            "failureThreshold": Noted(
                start.failures, f"until {start.delay_s + start.failures * start.period_s} s; {key}.load_timeout_s"
            ),
        },
        "readinessProbe": {
            **ask(workload.health.ready),
            "periodSeconds": READY_PERIOD_S,
            "timeoutSeconds": READY_TIMEOUT_S,
            "failureThreshold": READY_FAILURES,
        },
        "livenessProbe": Noted(
            {
                **ask(workload.health.alive),
                "periodSeconds": LIVE_PERIOD_S,
                "timeoutSeconds": LIVE_TIMEOUT_S,
                "failureThreshold": LIVE_FAILURES,
                "terminationGracePeriodSeconds": LIVE_GRACE_S,
            },
            f"Takes no scheduler slot; {LIVE_PERIOD_S * LIVE_FAILURES} s without one answer kill, for busy is not dead",
        ),
    }


def lead_s(pool: Pool) -> int:
    """How long a pod that is to end still takes requests: until the gateway has seen that DNS lacks it."""
    return whole_s(pool.discover_interval_s) + DNS_TTL_S + PROPAGATION_S


def with_grace(declaration: Declaration) -> Declaration:
    """Return the declaration with the drain bound that a declared `grace_s` leaves of it."""
    pools = {
        name: pool.model_copy(update={"stop_s": max(1.0, float(grace_s - lead_s(pool)))})
        if (grace_s := pool.kubernetes.grace_s) is not None
        else pool
        for name, pool in declaration.pools.items()
    }
    return declaration.model_copy(update={"pools": pools})


def needed_grace_s(cluster: Cluster, workload: Workload) -> int:
    return lead_s(cluster.pool(workload)) + whole_s(workload.stop_s)


def grace(cluster: Cluster, workload: Workload) -> Noted:
    """Return terminationGracePeriodSeconds."""
    declared = cluster.pool_settings(workload).grace_s
    key = "kubernetes.grace_s" if declared is not None else "stop_s"
    lead = lead_s(cluster.pool(workload))
    return Noted(
        needed_grace_s(cluster, workload),
        f"pools.{workload.pool}.{key}: {lead} s of preStop, then {workload.stop_s:g} s to drain",
    )


NODES_MARGIN_S = 5
"""For the nodes of a replica to end after its first one. Chosen."""


def nodes_lifecycle(cluster: Cluster, workload: Workload) -> Tree:
    """Return preStop of the nodes behind a replica's first one, without which its streams would break off."""
    seconds = Noted(needed_grace_s(cluster, workload), "until the first node has drained")
    return {"preStop": {"sleep": {"seconds": seconds}}}


def nodes_grace(cluster: Cluster, workload: Workload) -> Noted:
    return Noted(needed_grace_s(cluster, workload) + NODES_MARGIN_S, "the first node's, and time to end after it")


def lifecycle(cluster: Cluster, workload: Workload) -> Tree:
    """Return preStop: the engine is told to end only when no new request can reach it."""
    lead = lead_s(cluster.pool(workload))
    note = (
        f"discover_interval_s {cluster.pool(workload).discover_interval_s:g}, {DNS_TTL_S} s of DNS, {PROPAGATION_S} s"
    )
    return {"preStop": {"sleep": {"seconds": Noted(lead, f"until the gateway sends no more: {note}")}}}
