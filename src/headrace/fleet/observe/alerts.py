"""Alerts on headrace's own metrics: what each watches, why it matters and what to do. docs/alerts.md is made from it.

Bounds are chosen unless a source is named: a rule file is to be read and changed.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Prometheus label `severity`."""

    CRITICAL = "critical"
    """Callers are hurt now: wake somebody."""
    WARNING = "warning"
    """They will be, or a part of them is: look at it today."""
    INFO = "info"
    """Something works less well than it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule."""

    name: str
    group: str
    expr: str
    """PromQL, over metrics of telemetry/catalogue.py."""
    hold: str
    """How long it must hold, as Prometheus writes durations."""
    severity: Severity
    summary: str
    """With Prometheus' `{{ $labels... }}`."""
    action: str
    """What to do."""


BUDGET_SHARE = "headrace_budget_used / (headrace_budget > 0)"

ALERTS = (
    Alert(
        name="HeadraceBudgetNearlyUsed", group="budgets",
        expr=f"{BUDGET_SHARE} >= 0.8 < 1", hold="0s", severity=Severity.WARNING,
        summary="{{ $labels.level }} {{ $labels.name }} has used {{ $value | humanizePercentage }} of its budget of "
        "this {{ $labels.period }}",
        action="headrace budget shows who spends it; raise it, or tell its owner: at 100 % requests are refused.",
    ),
    Alert(
        name="HeadraceBudgetUsedUp", group="budgets",
        expr=f"{BUDGET_SHARE} >= 1", hold="0s", severity=Severity.CRITICAL,
        summary="{{ $labels.level }} {{ $labels.name }} has no budget left of this {{ $labels.period }}",
        action="Its requests are refused until the next period: headrace budget, headrace usage.",
    ),
    Alert(
        name="HeadraceQuotaRefuses", group="quotas",
        expr="sum by (level, limit) (rate(headrace_quota_refusals_total[10m])) "
        "> on () group_left () (0.05 * sum(rate(headrace_requests_total[10m])))",
        hold="10m", severity=Severity.WARNING,
        summary="{{ $labels.limit }} of the {{ $labels.level }} level refuses more than a twentieth of all requests",
        action="headrace quota shows whose limit it is and how it is used; one runaway client looks like this too.",
    ),
    Alert(
        name="HeadraceQueueOld", group="queue",
        expr='max by (model, class) (headrace_queue_oldest_seconds{class!="offline"}) > 30',
        hold="5m", severity=Severity.WARNING,
        summary="{{ $labels.class }} requests for {{ $labels.model }} wait {{ $value | humanizeDuration }} for room",
        action="headrace queue shows who waits and why; more replicas, or smaller shares for whoever floods it.",
    ),
    Alert(
        name="HeadraceQueueRefuses", group="queue",
        expr="sum by (model, bound) (rate(headrace_queue_refusals_total[5m])) > 0.1", hold="5m",
        severity=Severity.CRITICAL,
        summary="requests for {{ $labels.model }} are turned away: {{ $labels.bound }}",
        action="headrace queue; the model has more work than its pools can do within the declared bounds.",
    ),
    Alert(
        name="HeadraceLedgerLosesRecords", group="ledger",
        expr="increase(headrace_journal_dropped_records_total[15m]) > 0", hold="0s", severity=Severity.CRITICAL,
        summary="{{ $value | humanize }} records of the ledger were lost: usage and costs are incomplete",
        action="The disk of the state folder is full, or too slow: free space, look at its latency.",
    ),
    Alert(
        name="HeadraceLedgerBehind", group="ledger",
        expr="headrace_ledger_lag_records > 10000 and deriv(headrace_ledger_lag_records[15m]) > 0", hold="15m",
        severity=Severity.WARNING,
        summary="{{ $value | humanize }} records wait to be brought into the database, and the number grows",
        action="headrace status names the projector's trouble: the database is down, locked or too slow. Nothing is "
        "lost while the journal has room.",
    ),
    Alert(
        name="HeadraceRequestLogLosesLines", group="ledger",
        expr="increase(headrace_request_log_dropped_lines_total[15m]) > 0", hold="0s", severity=Severity.WARNING,
        summary="{{ $value | humanize }} lines of the request log were lost",
        action="The disk of the log folder is full, or too slow.",
    ),
    Alert(
        name="HeadraceSharedLimitsLost", group="sharing",
        expr="max(headrace_sharing_lost) == 1", hold="1m", severity=Severity.CRITICAL,
        summary="the coordinator or Redis, through which limits are shared, cannot be reached",
        action="gateway.sharing.on_store_loss holds until it is back: open limits are guesses, closed ones refuse.",
    ),
    Alert(
        name="HeadraceSharedLimitsFail", group="sharing",
        expr="sum(rate(headrace_sharing_failures_total[10m])) > 0.1 * "
        "(sum(rate(headrace_sharing_failures_total[10m])) + sum(rate(headrace_sharing_exchanges_total[10m])))",
        hold="10m", severity=Severity.WARNING,
        summary="more than a tenth of the exchanges with the store of shared limits fail",
        action="Look at the Redis server and the network to it; at the supervisor's log where there is none.",
    ),
    Alert(
        name="HeadraceNoEngineReady", group="engines",
        expr='sum(headrace_endpoint_state{state=~"ready|busy"}) == 0', hold="1m", severity=Severity.CRITICAL,
        summary="no engine is ready: every request is refused",
        action="headrace status says of each engine what it is doing and why.",
    ),
    Alert(
        name="HeadraceEngineOut", group="engines",
        expr='max by (endpoint, state) (headrace_endpoint_state{state=~"not-ready|ejected"}) > 0', hold="5m",
        severity=Severity.WARNING,
        summary="{{ $labels.endpoint }} is {{ $labels.state }}",
        action="headrace status gives the reason, headrace logs the engine's own words.",
    ),
    Alert(
        name="HeadraceReplicaCrashLoop", group="engines",
        expr='max by (replica) (headrace_replica_phase{phase="crash-loop"}) == 1', hold="0s",
        severity=Severity.CRITICAL,
        summary="{{ $labels.replica }} dies again and again and is no longer started",
        action="headrace logs says why; mend it, then headrace engine restart.",
    ),
    Alert(
        name="HeadraceGatewayRestarts", group="gateway",
        expr="increase(headrace_gateway_restarts_total[15m]) > 2", hold="0s", severity=Severity.CRITICAL,
        summary="gateway workers died {{ $value | humanize }} times in a quarter of an hour",
        action="The supervisor's log has their ends; a worker that is killed for memory looks like this.",
    ),
    Alert(
        name="HeadraceRequestsFail", group="gateway",
        expr='sum by (model) (rate(headrace_requests_total{outcome="failed"}[5m])) '
        "> 0.02 * sum by (model) (rate(headrace_requests_total[5m]))",
        hold="5m", severity=Severity.CRITICAL,
        summary="more than 2 % of the requests for {{ $labels.model }} fail by an engine's or headrace's fault",
        action="The label code of headrace_requests_total says how: docs/errors.md.",
    ),
    Alert(
        name="HeadraceStreamsBreak", group="gateway",
        expr="sum by (model, reason) (increase(headrace_unresumed_streams_total[10m])) > 5", hold="0s",
        severity=Severity.WARNING,
        summary="streams of {{ $labels.model }} broke and were not resumed: {{ $labels.reason }}",
        action="docs/resume.md has the reasons; the engines that died are in headrace status.",
    ),
    Alert(
        name="HeadraceIdentityKeysOld", group="identity",
        expr="time() - (headrace_identity_keys_time_seconds > 0) > 86400", hold="10m", severity=Severity.WARNING,
        summary="the keys of {{ $labels.issuer }} are {{ $value | humanizeDuration }} old",
        action="Its JWKS address cannot be reached: tokens signed with a new key are refused.",
    ),
    Alert(
        name="HeadracePredictionsOff", group="routing",
        expr="histogram_quantile(0.5, sum by (pool, le) (rate(headrace_routing_ttft_prediction_ratio_bucket[30m]))) "
        "> 3",
        hold="30m", severity=Severity.INFO,
        summary="half of the first tokens of {{ $labels.pool }} take more than {{ $value | humanize }} times as long "
        "as predicted",
        action="Others use its engines too, or they wait for something that tokens do not explain: headrace route.",
    ),
    Alert(
        name="HeadraceCacheEmptied", group="routing",
        expr="increase(headrace_kv_events_emptied_total[1h]) > 3", hold="0s", severity=Severity.WARNING,
        summary="the KV cache of {{ $labels.endpoint }} was {{ $labels.cause }} {{ $value | humanize }} times in an "
        "hour",
        action="Prompts are computed anew after each: look for who flushes it, or why the engine restarts.",
    ),
    Alert(
        name="HeadraceHandoversFail", group="routing",
        expr="sum by (model) (rate(headrace_handover_fallbacks_total[15m])) "
        "/ sum by (model) (rate(headrace_handovers_total[15m])) > 0.1",
        hold="15m", severity=Severity.WARNING,
        summary="{{ $value | humanizePercentage }} of the prompts of {{ $labels.model }} that are handed over go back "
        "to one engine",
        action="headrace_handover_fallbacks_total says at which step; each such prompt is computed twice: "
        "docs/disaggregation.md.",
    ),
    Alert(
        name="HeadraceEnginesDoNotFit", group="routing",
        expr='sum by (model) (headrace_handover_pairs{state="kv_layout_mismatch"}) > 0 '
        'and sum by (model) (headrace_handover_pairs{state=~"fits|not_measured"}) == 0',
        hold="5m", severity=Severity.WARNING,
        summary="no prefill engine of {{ $labels.model }} fits a decode engine: nothing is handed over",
        action="headrace status names what differs; run one version, number format and layout on both sides: "
        "docs/disaggregation.md.",
    ),
    Alert(
        name="HeadraceKvEventsMissed", group="routing",
        expr='increase(headrace_kv_events_messages_total{result=~"missed|unreadable"}[30m]) > 0', hold="30m",
        severity=Severity.INFO,
        summary="events of {{ $labels.endpoint }}'s KV cache are {{ $labels.result }}: what it holds is not known",
        action="Its replay port (the engine's port + 15000) must be reachable; docs/routing.md.",
    ),
)  # fmt: skip
