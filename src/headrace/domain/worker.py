"""What the supervisor and a gateway worker say to each other over the worker's Unix socket.

One JSON object a line, each answered by one WorkerReply line, in order. The plan travels as raw JSON
(`declaration.gateway_plan.GatewayPlan`), since it holds resolved secrets and must never touch a disk.
"""

import msgspec

from headrace.domain.quota import Spent
from headrace.domain.routing_status import HandoverFit
from headrace.domain.tenant import KeyRecord


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag="configure"):
    """Adopt this plan whole, or change nothing and say why. Sent at start and at each reload or endpoint change."""

    plan: msgspec.Raw


class SetKeys(msgspec.Struct, frozen=True, kw_only=True, tag="set_keys"):
    """Replace the set of known keys (revoked and expired ones left out)."""

    keys: tuple[KeyRecord, ...]


class SetSpent(msgspec.Struct, frozen=True, kw_only=True, tag="set_spent"):
    """What the ledger knows to have been spent of budgets: the worker counts at least that."""

    spent: tuple[Spent, ...]


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag="drain"):
    """Accept nothing new, finish what is in flight within `bound_s`, end the rest in-band, then exit 0."""

    bound_s: float
    is_replacement: bool = False
    """Another worker listens on the same socket already: requests on open connections are still served, each answered
    with `connection: close`, so that none is lost."""


class ReadMetrics(msgspec.Struct, frozen=True, kw_only=True, tag="read_metrics"):
    """Answer with the worker's metrics in Prometheus text format."""


class ReadStatus(msgspec.Struct, frozen=True, kw_only=True, tag="read_status"):
    """Answer with `WorkerStatus` as JSON."""


class ReadQuota(msgspec.Struct, frozen=True, kw_only=True, tag="read_quota"):
    """Answer with a list of `quota_status.LimitStatus` as JSON: every limit of the plan and of the keys."""


class ReadQueues(msgspec.Struct, frozen=True, kw_only=True, tag="read_queues"):
    """Answer with a list of `queue_status.QueueStatus` as JSON: one a model."""


class ReadRouting(msgspec.Struct, frozen=True, kw_only=True, tag="read_routing"):
    """Answer with `routing_status.RoutingStatus` as JSON."""


class ReadMisses(msgspec.Struct, frozen=True, kw_only=True, tag="read_misses"):
    """Answer with `miss_status.MissStatus` as JSON."""


class ReadSplits(msgspec.Struct, frozen=True, kw_only=True, tag="read_splits"):
    """Answer with `split_status.SplitStatus` as JSON."""


class ExplainRoute(msgspec.Struct, frozen=True, kw_only=True, tag="explain_route"):
    """Answer with `routing_status.RouteExplanation` as JSON: where this request would go now. Nothing is sent."""

    path: str
    body: str
    """As a caller would send it."""
    tenant: str = ""
    request_class: str | None = None


WorkerCommand = (
    Configure
    | SetKeys
    | SetSpent
    | Drain
    | ReadMetrics
    | ReadStatus
    | ReadQuota
    | ReadQueues
    | ReadRouting
    | ReadMisses
    | ReadSplits
    | ExplainRoute
)


class WorkerReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one command."""

    ok: bool
    message: str = ""
    """Why not ok."""
    text: str = ""
    """Metrics text or status JSON."""


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint as this worker sees it."""

    endpoint: str
    pool: str
    engine: str
    state: str
    reason: str
    """Why it is in that state, for a person."""
    since_at: float
    in_flight: int
    requests: int
    failures: int
    version: str | None = None
    """Its engine's, where it was asked (engines that hand prompts over) and says it."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway worker at one moment."""

    pid: int
    version: str
    plan_revision: int
    is_ready: bool
    is_draining: bool
    in_flight: int
    connections: int
    requests: int
    endpoints: tuple[EndpointStatus, ...]
    journal_dropped: int
    """Records that could not be written and were dropped (full disk, slow disk)."""
    journal_pending: int = 0
    """Records in its memory that are not on disk yet; they go with it if it is killed."""
    handovers: tuple[HandoverFit, ...] = ()
    """Which pairs of prefill and decode engines go together; one per model that has any."""
    sharing_trouble: str | None = None
    """Why the store of shared limits is out of reach; empty: it answers; None: nothing is shared."""
