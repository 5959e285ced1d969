"""Third row: who waits, how full the engines are, and in which state."""

from headrace.domain.endpoint import EndpointState, ReplicaPhase
from headrace.fleet.observe.dashboard.panel import Color, Panel, Query, Row, Shape, Threshold, Unit, Word
from headrace.fleet.observe.dashboard.promql import largest, ratio, state_number, summed, troubles
from headrace.telemetry import catalogue, routing_metrics

STATES = (
    (EndpointState.READY, Color.GREEN), (EndpointState.BUSY, Color.YELLOW), (EndpointState.DRAINING, Color.BLUE),
    (EndpointState.UNKNOWN, Color.GRAY), (EndpointState.NOT_READY, Color.ORANGE), (EndpointState.EJECTED, Color.RED),
)  # fmt: skip
"""From well to ill: where gateway workers disagree, the worst is shown."""
PHASES = (
    (ReplicaPhase.READY, Color.GREEN), (ReplicaPhase.STOPPED, Color.GRAY), (ReplicaPhase.DRAINING, Color.BLUE),
    (ReplicaPhase.FETCHING, Color.PURPLE), (ReplicaPhase.LOADING, Color.PURPLE), (ReplicaPhase.WARMING, Color.YELLOW),
    (ReplicaPhase.BACKING_OFF, Color.ORANGE), (ReplicaPhase.CRASH_LOOP, Color.RED),
)  # fmt: skip


def _words(states: tuple[tuple[EndpointState | ReplicaPhase, Color], ...]) -> tuple[Word, ...]:
    return tuple(Word(number, state.value, color) for number, (state, color) in enumerate(states, start=1))


QUEUES = (
    Panel(
        title="Waiting, by model and class",
        description="Requests that wait in the gateway for room. Who waits and why: headrace queue.",
        queries=(Query(summed(catalogue.QUEUE_WAITING, by=("model", "class")), "{{model}} {{class}}"),),
        unit=Unit.COUNT, is_stacked=True,
    ),
    Panel(
        title="Oldest waiting",
        description="How long the first in line has waited. The alert HeadraceQueueOld fires at the line, class "
        "offline aside: it may wait for hours.",
        queries=(Query(largest(catalogue.QUEUE_OLDEST, by=("model", "class")), "{{model}} {{class}}"),),
        unit=Unit.SECONDS, thresholds=(Threshold(30, Color.RED),),
    ),
    Panel(
        title="Refused by queues, or changed by them",
        description="Refused or ended, by the bound that was full; made shorter or sent to a cheaper model; offline "
        "requests taken back from an engine for more urgent ones. More replicas, or smaller shares for whoever floods "
        "it: docs/queueing.md. No data: nothing of it happened.",
        queries=(
            Query(troubles(catalogue.QUEUE_REFUSALS, by=("model", "bound")), "{{model}} refused: {{bound}}"),
            Query(troubles(catalogue.QUEUE_DEGRADED, by=("model", "step")), "{{model}} changed: {{step}}"),
            Query(troubles(catalogue.QUEUE_WITHDRAWALS, by=("model",)), "{{model}} taken back"),
        ),
        unit=Unit.PER_MINUTE,
    ),
)  # fmt: skip

ENDPOINTS = (
    Panel(
        title="Endpoint states",
        description="As the gateways see each endpoint; where workers disagree, the worst. Busy: probes time out while "
        "requests make progress, it is still used. Why: headrace status.",
        queries=(
            Query(
                state_number(catalogue.ENDPOINT_STATE, "state", [state.value for state, _ in STATES]), "{{endpoint}}"
            ),
        ),
        unit=Unit.STATE, shape=Shape.STATES, width=12, words=_words(STATES),
    ),
    Panel(
        title="Replica phases",
        description="Of engines that headrace itself runs; no data where all run elsewhere. crash-loop: it is no "
        "longer started, headrace logs says why.",
        queries=(
            Query(state_number(catalogue.REPLICA_PHASE, "phase", [phase.value for phase, _ in PHASES]), "{{replica}}"),
        ),
        unit=Unit.STATE, shape=Shape.STATES, width=12, words=_words(PHASES),
    ),
    Panel(
        title="In flight by endpoint",
        description="Requests at each endpoint now, of all gateways.",
        queries=(Query(summed(catalogue.ENDPOINT_IN_FLIGHT, by=("endpoint",)), "{{endpoint}}"),),
        unit=Unit.COUNT,
    ),
    Panel(
        title="Places in use",
        description="Requests at each endpoint as a share of those it may have; at 100 % requests wait in the "
        "gateway. Missing where no bound is known.",
        queries=(
            Query(
                ratio(
                    summed(catalogue.ENDPOINT_IN_FLIGHT, by=("endpoint",)),
                    summed(catalogue.ENDPOINT_PLACES, by=("endpoint",)),
                ),
                "{{endpoint}}",
            ),
        ),
        unit=Unit.SHARE, thresholds=(Threshold(1, Color.ORANGE),),
    ),
    Panel(
        title="Prompt tokens queued at endpoints",
        description="Prompt tokens sent whose first token has not come: what a new prompt waits behind.",
        queries=(Query(summed(catalogue.ENDPOINT_PREFILL, by=("endpoint",)), "{{endpoint}}"),),
        unit=Unit.TOKENS,
    ),
    Panel(
        title="Tokens held by endpoints",
        description="Tokens of requests that have their first token: what decoding has to carry, as the gateway knows.",
        queries=(Query(summed(catalogue.ENDPOINT_HELD, by=("endpoint",)), "{{endpoint}}"),),
        unit=Unit.TOKENS,
    ),
    Panel(
        title="Age of engines' own figures",
        description="How old what an engine tells of its load is. Growing: its metrics cannot be read, and routing "
        "goes by what the gateway itself sent.",
        queries=(Query(largest(catalogue.ENDPOINT_LOAD_AGE, by=("endpoint",)), "{{endpoint}}"),),
        unit=Unit.SECONDS,
    ),
    Panel(
        title="Running and waiting in engines",
        description="As the engines of a pool say. Waiting in engines while nothing waits in the gateway: the bound of "
        "places is too high for fair queueing.",
        queries=(
            Query(largest(routing_metrics.POOL_RUNNING, by=("pool", "role")), "{{pool}} {{role}} running"),
            Query(largest(routing_metrics.POOL_WAITING, by=("pool", "role")), "{{pool}} {{role}} waiting"),
        ),
        unit=Unit.COUNT,
    ),
    Panel(
        title="KV memory in use",
        description="Mean of a pool's engines, as they say. Near 100 % engines preempt requests and ITL jumps.",
        queries=(Query(largest(routing_metrics.POOL_KV, by=("pool", "role")), "{{pool}} {{role}}"),),
        unit=Unit.SHARE, top=1, thresholds=(Threshold(0.95, Color.RED),),
    ),
    Panel(
        title="Prompt tokens queued by pool",
        description="As by endpoint, added up: which of prefill and decode is short where they are apart.",
        queries=(Query(summed(routing_metrics.POOL_PREFILL, by=("pool", "role")), "{{pool}} {{role}}"),),
        unit=Unit.TOKENS,
    ),
)  # fmt: skip

ROW = Row(title="Load", panels=(*QUEUES, *ENDPOINTS), is_open=True)
