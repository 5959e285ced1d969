"""Last row: the gateway's own processes, its records and what it depends on."""

from headrace.fleet.observe.dashboard.panel import Color, Panel, Query, Row, Shape, Threshold, Unit, Word
from headrace.fleet.observe.dashboard.promql import (
    INSTANCE,
    largest,
    per_hour,
    per_minute,
    per_second,
    ratio,
    series,
    summed,
)
from headrace.telemetry import catalogue, process_metrics

BY_INSTANCE = (INSTANCE,)
REACHABLE = (Word(0, "reachable", Color.GREEN), Word(1, "lost", Color.RED))

ROW = Row(
    title="The gateway itself",
    panels=(
        Panel(
            title="CPU (cores)",
            description="Cores in use by all workers of an instance. A worker is one thread: at one core each, add "
            "workers (gateway.workers). No data where the system does not tell.",
            queries=(Query(per_second(process_metrics.PROCESS_CPU, by=BY_INSTANCE), "{{instance}}"),),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Memory",
            description="Resident, of all workers of an instance; pages that they share count in each.",
            queries=(Query(summed(process_metrics.PROCESS_RESIDENT, by=BY_INSTANCE), "{{instance}}"),),
            unit=Unit.BYTES,
        ),
        Panel(
            title="Open files",
            description="As a share of what the system grants. At 100 % new callers are not accepted.",
            queries=(
                Query(
                    ratio(
                        summed(process_metrics.PROCESS_OPEN_FILES, by=BY_INSTANCE),
                        summed(process_metrics.PROCESS_MAX_FILES, by=BY_INSTANCE),
                    ),
                    "{{instance}}",
                ),
            ),
            unit=Unit.SHARE, top=1, thresholds=(Threshold(0.8, Color.ORANGE),),
        ),
        Panel(
            title="Callers' connections",
            description="Open now, whether a request is under way on them or not.",
            queries=(Query(summed(catalogue.CONNECTIONS, by=BY_INSTANCE), "{{instance}}"),),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Records on their way",
            description="Of the ledger: not on disk yet (a power cut would lose them), and on disk but not in the "
            "database yet (lost never; usage shows them later).",
            queries=(
                Query(summed(catalogue.JOURNAL_PENDING, by=BY_INSTANCE), "{{instance}} not on disk"),
                Query(summed(catalogue.LEDGER_LAG, by=BY_INSTANCE), "{{instance}} not in the database"),
            ),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Records and log lines lost",
            description="The disk is full or too slow: usage and costs are incomplete from here on. Must be 0.",
            queries=(
                Query(per_minute(catalogue.JOURNAL_DROPPED, by=BY_INSTANCE), "{{instance}} records"),
                Query(per_minute(catalogue.LOG_DROPPED, by=BY_INSTANCE), "{{instance}} log lines"),
            ),
            unit=Unit.PER_MINUTE,
        ),
        Panel(
            title="Store of shared limits",
            description="Coordinator or Redis. While it is lost gateway.sharing.on_store_loss holds: open limits are "
            "guesses, closed ones refuse. No data: nothing is shared.",
            queries=(Query(largest(catalogue.SHARING_LOST, by=BY_INSTANCE), "{{instance}}"),),
            unit=Unit.STATE, shape=Shape.STATES, words=REACHABLE,
        ),
        Panel(
            title="Exchanges with the store",
            description="Answered and failed. The alert HeadraceSharedLimitsFail fires where a tenth fail.",
            queries=(
                Query(per_second(catalogue.SHARING_EXCHANGES), "answered"),
                Query(per_second(catalogue.SHARING_FAILURES), "failed"),
            ),
            unit=Unit.PER_SECOND, colors=(("answered", Color.GREEN), ("failed", Color.RED)),
        ),
        Panel(
            title="Processes that share limits",
            description="As last known. Fewer than there are: one of them cannot reach the store.",
            queries=(Query(largest(catalogue.SHARING_MEMBERS, by=BY_INSTANCE), "{{instance}}"),),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Restarts of gateway workers",
            description="Per hour. Their callers' connections broke: the supervisor's log has their ends.",
            queries=(
                Query(per_hour(catalogue.GATEWAY_RESTARTS, by=BY_INSTANCE), "{{instance}} per hour"),
            ),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Age of identity providers' keys",
            description="Old: their address cannot be reached, and tokens signed with a new key are refused. The alert "
            "fires at the line, a day. No data: no identity provider is declared.",
            queries=(
                Query(
                    f"time() - min by (issuer) ({series(catalogue.IDENTITY_KEYS_TIME)} > 0)", "{{issuer}}"
                ),
            ),
            unit=Unit.SECONDS, thresholds=(Threshold(86400, Color.ORANGE),),
        ),
        Panel(
            title="Up since",
            description="Age of the oldest worker of each instance.",
            queries=(
                Query(f"time() - min by (instance) ({series(process_metrics.PROCESS_START)})", "{{instance}}"),
            ),
            unit=Unit.SECONDS, shape=Shape.NUMBER,
        ),
    ),
    is_open=False,
)  # fmt: skip
