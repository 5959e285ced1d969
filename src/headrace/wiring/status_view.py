"""The supervisor's state as operators see it: fleet and gateway facts put into the control API's words. Pure."""

from collections.abc import Iterable, Sequence

from headrace.control_api.operations import (
    EndpointSummary,
    GatewayWorkerSummary,
    ModelSummary,
    PhaseSpan,
    ReplicaStatus,
)
from headrace.declaration.gateway_plan import GatewayPlan
from headrace.declaration.model import Declaration
from headrace.domain.endpoint import EndpointState, ReplicaPhase
from headrace.domain.routing_status import HandoverFit
from headrace.domain.worker import EndpointStatus, WorkerStatus
from headrace.fleet.deploy.replica_runner import ReplicaRunner
from headrace.fleet.deploy.worker_process import WorkerProcess

STATES_BEST_FIRST = (
    EndpointState.READY,
    EndpointState.BUSY,
    EndpointState.UNKNOWN,
    EndpointState.DRAINING,
    EndpointState.NOT_READY,
    EndpointState.EJECTED,
)
READY = "ready"
"""Nothing is being waited for."""
USABLE = frozenset({EndpointState.READY, EndpointState.BUSY})


def replica_status(runner: ReplicaRunner, now_mono_s: float) -> ReplicaStatus:
    """Describe one replica."""
    life = runner.life
    life.note_steady(now_mono_s)
    spans = [PhaseSpan(phase=phase.value, duration_s=round(seconds, 3)) for phase, seconds in life.spans]
    if life.phase is not ReplicaPhase.STOPPED:
        spans.append(PhaseSpan(phase=life.phase.value, duration_s=round(now_mono_s - life.since_mono_s, 3)))
    reason = runner.reason
    if life.verdict and life.verdict not in reason:
        reason = f"{reason} ({life.verdict})"
    return ReplicaStatus(
        endpoint=runner.plan.endpoint,
        pool=runner.plan.pool,
        engine=runner.plan.shape.engine.value,
        launch=runner.launch_description,
        url=runner.url,
        pid=runner.process.pid if runner.process else None,
        phase=life.phase.value,
        reason=reason,
        since_at=runner.since_at,
        spans=tuple(spans),
        restarts=life.restarts,
        last_lines=life.last_lines,
        failure=life.failure or None,
    )


def endpoint_summaries(plan: GatewayPlan | None, workers: Iterable[WorkerStatus]) -> list[EndpointSummary]:
    """Sum each endpoint over all workers, and show the worst state any of them sees."""
    if plan is None:
        return []
    seen: dict[str, list[EndpointStatus]] = {}
    for worker in workers:
        for status in worker.endpoints:
            seen.setdefault(status.endpoint, []).append(status)
    pools = {pool.name: pool for pool in plan.pools}
    urls = {address.endpoint: address.url for pool in plan.pools for address in pool.endpoints}
    summaries: list[EndpointSummary] = []
    for endpoint, views in seen.items():
        worst = max(views, key=lambda view: _rank(view.state))
        pool = pools.get(worst.pool)
        summaries.append(
            EndpointSummary(
                endpoint=endpoint,
                pool=worst.pool,
                model=pool.model if pool else "",
                engine=worst.engine,
                url=urls.get(endpoint, ""),
                state=worst.state,
                reason=worst.reason,
                since_at=worst.since_at,
                in_flight=sum(view.in_flight for view in views),
                requests=sum(view.requests for view in views),
                failures=sum(view.failures for view in views),
                version=worst.version or next((view.version for view in views if view.version), None),
            )
        )
    return summaries


def handover_fits(workers: Iterable[WorkerStatus]) -> tuple[HandoverFit, ...]:
    """Every model whose prompts are handed over, as the worker sees it that keeps the most pairs apart."""
    found: dict[str, HandoverFit] = {}
    for worker in workers:
        for fit in worker.handovers:
            known = found.get(fit.model)
            found[fit.model] = fit if known is None or fit.unfit > known.unfit else known
    return tuple(found[model] for model in sorted(found))


def model_summaries(
    declaration: Declaration, replicas: Sequence[ReplicaStatus], endpoints: Sequence[EndpointSummary]
) -> list[ModelSummary]:
    """Say for each declared model where it is served and whether it can answer."""
    summaries: list[ModelSummary] = []
    for name, model in declaration.models.items():
        pools = [pool for pool, section in declaration.pools.items() if section.model == name]
        served = [endpoint for endpoint in endpoints if endpoint.pool in pools]
        ready = sum(endpoint.state in USABLE for endpoint in served)
        loading = [replica for replica in replicas if replica.pool in pools]
        summaries.append(
            ModelSummary(
                model=name,
                pools=tuple(pools),
                endpoints=max(len(served), len(loading)),
                ready_endpoints=ready,
                context_tokens=model.context_tokens,
                embeddings=any(declaration.pools[pool].embeddings for pool in pools),
                state=_model_state(ready, loading, served, has_pool=bool(pools)),
            )
        )
    return summaries


def worker_summaries(workers: Iterable[tuple[WorkerProcess, WorkerStatus | None]]) -> list[GatewayWorkerSummary]:
    return [
        GatewayWorkerSummary(worker=worker.serial, pid=worker.pid, restarts=worker.restarts, status=status)
        for worker, status in workers
    ]


def waiting_for(models: Sequence[ModelSummary]) -> str:
    """What an operator is waiting for, or "ready"."""
    waiting = [f"{model.model}: {model.state}" for model in models if model.pools and not model.ready_endpoints]
    return "; ".join(waiting) or READY


def _model_state(
    ready: int, replicas: Sequence[ReplicaStatus], endpoints: Sequence[EndpointSummary], *, has_pool: bool
) -> str:
    if ready:
        return "ready"
    if not has_pool:
        return "no pool serves it"
    if replicas:
        best = replicas[0]
        return f"{best.phase}: {best.reason}" if best.reason != best.phase else best.phase
    if not endpoints:
        return "no endpoint ready"
    best = min(endpoints, key=lambda endpoint: _rank(endpoint.state))
    return f"no endpoint ready: {best.endpoint} is {best.state}: {best.reason}"


def _rank(state: str) -> int:
    names = [known.value for known in STATES_BEST_FIRST]
    return names.index(state) if state in names else len(names)
