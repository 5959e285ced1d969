"""More and fewer replicas by three signals: requests that wait in the gateway for the model, requests that wait in the
engines, and how full their KV caches are. The gateway's come first, since it keeps what an engine has no room for.

Fewer come slowly: only when fewer have been enough for `settle_s`, one at a time, and the next not before that one's
streams have had their drain bound. The pod's own end (probes.py) lets them finish.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.declaration.kubernetes_sections import Autoscale
from headrace.engines.metrics import Combine, EngineMetric, Purpose
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.render.core.container_words import whole_s
from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted
from headrace.fleet.deploy.render.kubernetes.objects import Cluster, KubeObject, Tree, engine_labels, engine_name
from headrace.fleet.deploy.render.kubernetes.probes import needed_grace_s

LEAST_SETTLE_S = 300
POD_SUFFIX, LEADER_SUFFIX = "[a-z0-9]{1,10}-[a-z0-9]{5}", "[0-9]+"
"""What a Deployment's pods, and a LeaderWorkerSet's leaders, have after its name."""
GATEWAY_QUEUE = "headrace_queue_waiting_requests"
"""Of telemetry/catalogue.py, with the labels model and class."""
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
ASK_S = 15
"""How often KEDA asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One thing that calls for more replicas."""

    metric: EngineMetric | None
    """None: the gateway's queue."""
    threshold: float
    """On average over replicas."""
    origin: str


def scaler_of(cluster: Cluster, workload: Workload) -> Iterator[KubeObject]:
    """Yield the scaler of a pool whose replicas follow the load."""
    autoscale = cluster.pool_settings(workload).autoscale
    if autoscale is None:
        return
    if autoscale.by == "keda":
        yield _scaled_object(cluster, workload, autoscale)
    else:
        yield _horizontal_autoscaler(cluster, workload, autoscale)


def signals_of(workload: Workload, autoscale: Autoscale) -> list[Signal]:
    """Return all that calls for more: the gateway's queue, and what the engine's version tells of its load."""
    origin = f"pools.{workload.pool}.kubernetes.autoscale.waiting, in the gateway"
    first = Signal(metric=None, threshold=autoscale.waiting, origin=origin)
    return [first, *engine_signals(workload, autoscale)]


def engine_signals(workload: Workload, autoscale: Autoscale) -> list[Signal]:
    """Return what the engine's version tells of its load."""
    table = driver_for(workload.engine).metrics
    key = f"pools.{workload.pool}.kubernetes.autoscale"
    wanted = (
        (Purpose.WAITING, autoscale.waiting, "waiting"),
        (Purpose.KV_UTILIZATION, autoscale.kv_utilization, "kv_utilization"),
    )
    found: list[Signal] = []
    for purpose, threshold, name in wanted:
        rows = table.for_purpose(purpose, workload.image.engine_version or table.version) if table else ()
        if rows:
            found.append(Signal(metric=rows[0], threshold=threshold, origin=f"{key}.{name}"))
    return found


def scale_target(cluster: Cluster, workload: Workload) -> Tree:
    is_group = workload.nodes > 1
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1" if is_group else "apps/v1",
        "kind": "LeaderWorkerSet" if is_group else "Deployment",
        "name": engine_name(cluster, workload),
    }


def behavior_of(cluster: Cluster, workload: Workload, autoscale: Autoscale) -> Tree:
    """Return how fast replicas come and go."""
    drain_s = needed_grace_s(cluster, workload)
    settle_s = autoscale.settle_s
    if settle_s is None:
        settle_s = min(3600, max(LEAST_SETTLE_S, drain_s + whole_s(workload.expected_load_s)))
    period_s = min(1800, max(15, drain_s))
    return {
        "scaleDown": {
            "stabilizationWindowSeconds": Noted(settle_s, f"pools.{workload.pool}.kubernetes.autoscale.settle_s"),
            "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": Noted(period_s, "streams of the one before have ended")}
            ],
            "selectPolicy": "Min",
        },
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 60}],
        },
    }


def query_of(cluster: Cluster, workload: Workload, metric: EngineMetric | None, *, namespace: str | None = None) -> str:
    """Return the PromQL whose value, divided by the replicas, is compared."""
    namespace = namespace or cluster.namespace
    if metric is None:
        return f'sum({GATEWAY_QUEUE}{{namespace="{namespace}",model="{workload.model}"}})'
    suffix = LEADER_SUFFIX if workload.nodes > 1 else POD_SUFFIX
    pods = f'namespace="{namespace}",pod=~"{engine_name(cluster, workload)}-{suffix}"'
    series = f"{metric.name}{{{pods}}}"
    # several series of one pod are ranks or copies: the fullest counts, sums are summed
    inner = "max" if metric.combine is Combine.MAX or metric.replicas else "sum"
    return f"sum({inner} by (pod) ({series}))"


def triggers_of(
    cluster: Cluster, workload: Workload, autoscale: Autoscale, *, namespace: str | None = None
) -> list[object]:
    """Return KEDA's triggers; `namespace` where an overlay puts the pods elsewhere."""
    return [
        {
            "type": "prometheus",
            "metricType": "AverageValue",
            "metadata": {
                "serverAddress": Noted(cluster.settings.prometheus, "deployment.kubernetes.prometheus"),
                "query": query_of(cluster, workload, signal.metric, namespace=namespace),
                "threshold": Noted(f"{signal.threshold:g}", signal.origin),
            },
        }
        for signal in signals_of(workload, autoscale)
    ]


def _scaled_object(cluster: Cluster, workload: Workload, autoscale: Autoscale) -> KubeObject:
    spec: Tree = {
        "scaleTargetRef": scale_target(cluster, workload),
        "minReplicaCount": Noted(autoscale.minimum, f"pools.{workload.pool}.kubernetes.autoscale.minimum"),
        "maxReplicaCount": Noted(autoscale.maximum, f"pools.{workload.pool}.kubernetes.autoscale.maximum"),
        "pollingInterval": ASK_S,
        "fallback": Noted(
            {"failureThreshold": 4, "replicas": autoscale.minimum, "behavior": "currentReplicasIfHigher"},
            "without an answer of Prometheus nothing is scaled down",
        ),
        "advanced": {
            "horizontalPodAutoscalerConfig": {"behavior": behavior_of(cluster, workload, autoscale)},
        },
        "triggers": triggers_of(cluster, workload, autoscale),
    }
    return _object(cluster, workload, "keda.sh/v1alpha1", "ScaledObject", spec)


def _horizontal_autoscaler(cluster: Cluster, workload: Workload, autoscale: Autoscale) -> KubeObject:
    spec: Tree = {
        "scaleTargetRef": scale_target(cluster, workload),
        "minReplicas": Noted(autoscale.minimum, f"pools.{workload.pool}.kubernetes.autoscale.minimum"),
        "maxReplicas": Noted(autoscale.maximum, f"pools.{workload.pool}.kubernetes.autoscale.maximum"),
        "metrics": [
            _hpa_metric(workload, signal)
            for signal in signals_of(workload, autoscale)
            if signal.metric is not None or can_select(workload.model)
        ],
        "behavior": behavior_of(cluster, workload, autoscale),
    }
    return _object(cluster, workload, "autoscaling/v2", "HorizontalPodAutoscaler", spec)


def can_select(model: str) -> bool:
    """Tell whether a HorizontalPodAutoscaler can ask for a model by its name, which must be a label's value."""
    return LABEL_VALUE.fullmatch(model) is not None


def _hpa_metric(workload: Workload, signal: Signal) -> Tree:
    target = {"type": "AverageValue", "averageValue": Noted(_milli(signal.threshold), signal.origin)}
    if signal.metric is not None:
        return {"type": "Pods", "pods": {"metric": {"name": signal.metric.name}, "target": target}}
    metric = {"name": GATEWAY_QUEUE, "selector": {"matchLabels": {"model": workload.model}}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def _milli(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"


def _object(cluster: Cluster, workload: Workload, version: str, kind: str, spec: Tree) -> KubeObject:
    tree: Tree = {
        "apiVersion": version,
        "kind": kind,
        "metadata": cluster.metadata(engine_name(cluster, workload), engine_labels(cluster, workload)),
        "spec": spec,
    }
    about = "Replicas by the engine's queue and KV cache; fewer only when streams have had time to end."
    return KubeObject(file=f"{object_name(workload.pool)}.yaml", tree=tree, about=about)
