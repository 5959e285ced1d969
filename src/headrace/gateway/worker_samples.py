"""What the steps' counts look like at the moment they are asked for: parts of the composition root, `worker.py`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from time import monotonic

from headrace.declaration.gateway_plan import PoolPlan
from headrace.domain.endpoint import EndpointState
from headrace.domain.errors import Outcome
from headrace.domain.quota_status import LimitStatus
from headrace.domain.split_status import LoadTotals, ModelLoad, PoolPace, SplitStatus
from headrace.gateway.accounting.counters import Counters, ModelCounters
from headrace.gateway.accounting.exposition import EndpointSample
from headrace.gateway.accounting.handover_exposition import HandoverBook, HandoverCounts
from headrace.gateway.accounting.identity_exposition import IssuerSample
from headrace.gateway.accounting.quota_exposition import BudgetSample, QuotaSample
from headrace.gateway.accounting.sharing_exposition import SharingSample
from headrace.gateway.admission.core.gpu_rates import PoolSpeed as BusyPace
from headrace.gateway.admission.core.leased_slots import LeasedSlots
from headrace.gateway.admission.core.meter import Meter
from headrace.gateway.admission.quota import Quota
from headrace.gateway.admission.sharing.keeper import LeaseKeeper
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.identity.reception import Reception
from headrace.gateway.load_window import LoadWindow
from headrace.gateway.routing.core.candidate import PoolSpeed, prefill_work
from headrace.gateway.routing.disaggregation.handovers import LEARNED_POINTS
from headrace.gateway.routing.placer import Placer

LOOK_S = 1.0
"""Between two looks at how much is generated at once. Chosen."""
MOST_TOKENS_PER_S = 1e8
"""A learned rate above this is none: prompts were too short, or too much alike, to tell what a token takes. Chosen."""


def sample_endpoints(endpoints: Iterable[Endpoint]) -> tuple[EndpointSample, ...]:
    """Every endpoint as it is now."""
    return tuple(
        EndpointSample(
            endpoint=endpoint.endpoint_id,
            state=EndpointState.DRAINING if endpoint.is_draining else endpoint.state,
            in_flight=endpoint.in_flight,
            requests=endpoint.requests,
            failures=endpoint.failures,
        )
        for endpoint in endpoints
    )


def sample_sharing(keeper: LeaseKeeper | None) -> SharingSample | None:
    """None: nothing is shared."""
    figures = keeper.desk.figures() if keeper else None
    return figures and SharingSample(
        is_lost=figures.is_lost,
        members=figures.members,
        exchanges=figures.exchanges,
        failures=figures.failures,
        losses=figures.losses,
    )


def sample_issuers(reception: Reception) -> tuple[IssuerSample, ...]:
    """How the keys of every identity provider came."""
    return tuple(
        IssuerSample(name=one.plan.name, fetched_at=one.fetched_at, fetched=one.fetched, failed=one.failed)
        for one in reception.issuers
    )


def limit_statuses(meters: Iterable[Meter], now_mono_s: float) -> tuple[LimitStatus, ...]:
    """What is used of every limit, as far as this worker knows."""
    return tuple(
        LimitStatus(
            level=meter.limit_id.level,
            name=meter.limit_id.name,
            unit=meter.limit_id.unit,
            limit=meter.amount,
            used=meter.used(now_mono_s),
            reset_s=reset_s if isfinite(reset_s := meter.reset_s(now_mono_s)) else None,
            here=meter.here(now_mono_s) if isinstance(meter, LeasedSlots) else None,
        )
        for meter in meters
    )


def sample_quota(quota: Quota) -> QuotaSample:
    """Refusals, and how far every budget is used."""
    watch = quota.budgets
    return QuotaSample(
        refusals=quota.refusals,
        budgets=tuple(
            BudgetSample(limit_id=meter.limit_id, used_nanos=meter.used(monotonic()), amount_nanos=meter.amount)
            for meter in watch.meters
        ),
        marks=watch.marks,
    )


class LoadWatch:
    """Traffic and speed of every model over the last hour, for whoever sizes prefill and decode. Costs a request
    nothing: it looks at counts that are kept anyway. Concurrency: event loop only.
    """

    def __init__(
        self,
        directory: EndpointDirectory,
        placer: Placer,
        counters: Counters,
        book: HandoverBook,
        busy_paces: Callable[[], Mapping[str, BusyPace]],
    ) -> None:
        self._directory = directory
        self._placer = placer
        self._counters = counters
        self._book = book
        self._busy_paces = busy_paces
        self._window = LoadWindow()
        self._looked_mono_s = 0.0

    def sweep(self, now_mono_s: float) -> None:
        """Called a few times a second."""
        if now_mono_s - self._looked_mono_s < LOOK_S:
            return
        self._looked_mono_s = now_mono_s
        for endpoint, candidate, _ in self._placer.known():
            if candidate.running:
                self._window.note_running(endpoint.plan.name, candidate.running)
        if self._window.is_due(now_mono_s):
            self._window.keep({model: self._totals(model) for model in self._by_model()}, now_mono_s)

    def status(self) -> SplitStatus:
        """What came in the window, and what engines can do."""
        window_s = self._window.window_s(monotonic())
        return SplitStatus(
            workers=1,
            models=tuple(self._load(model, pools, window_s) for model, pools in self._by_model().items()),
        )

    def _by_model(self) -> dict[str, list[PoolPlan]]:
        found: dict[str, list[PoolPlan]] = {}
        for plan in self._directory.plans():
            if not plan.embeddings:
                found.setdefault(plan.model, []).append(plan)
        return found

    def _totals(self, model: str) -> LoadTotals:
        return load_totals(self._counters.of(model), self._book.models.get(model))

    def _load(self, model: str, pools: Sequence[PoolPlan], window_s: float) -> ModelLoad:
        totals = self._window.since(model, self._totals(model))
        over_s = max(window_s, LOOK_S)
        uncached = max(0, totals.input_tokens - totals.cached_tokens)
        fresh_ratio = uncached / totals.input_tokens if totals.input_tokens else 0.0
        return ModelLoad(
            model=model,
            window_s=window_s,
            requests_per_s=totals.requests / over_s,
            uncached_tokens_per_s=uncached / over_s,
            output_tokens_per_s=totals.output_tokens / over_s,
            handed_tokens_per_s=min(float(uncached), totals.handed_tokens * fresh_ratio) / over_s,
            totals=totals,
            pools=tuple(self._pace(plan, totals, fresh_ratio) for plan in pools),
        )

    def _pace(self, plan: PoolPlan, totals: LoadTotals, fresh_ratio: float) -> PoolPace:
        endpoints, handover = self._directory.of_pool(plan.name), plan.handover
        handed, peak = totals.stages.get("transfer", 0), self._window.peak(plan.name)
        prompt_tokens = totals.input_tokens / totals.requests if totals.requests else 0.0
        if handover is not None and handover.role == "prefill" and handed:
            prompt_tokens = totals.handed_tokens / handed
        speed = dict(self._placer.speeds()).get(plan.name)
        busy = None if handover is not None else self._busy_paces().get(plan.name)
        prefill, prefill_from = _prefill_pace(plan, speed, busy, prompt_tokens, fresh_ratio)
        decode, decode_from = _decode_pace(plan, speed, busy, peak or 1)
        return PoolPace(
            pool=plan.name,
            role="both" if handover is None else handover.role,
            engines=len(endpoints),
            usable_engines=sum(endpoint.is_usable for endpoint in endpoints),
            prefill_tokens_per_s=prefill,
            prefill_from=prefill_from,
            prompts=0 if speed is None else speed.ttft.points,
            decode_tokens_per_s=decode,
            decode_from=decode_from,
            answers=0 if speed is None else speed.tpot.points,
            at_sequences=peak,
            places=plan.queue.sequences,
            min_tokens=None if handover is None else handover.min_tokens,
            min_gain_s=None if handover is None else handover.min_gain_s,
        )


def load_totals(counters: ModelCounters, handed: HandoverCounts | None) -> LoadTotals:
    """One model's counts since the worker started."""
    own = LoadTotals(
        requests=counters.ended.get((Outcome.COMPLETED.value, ""), 0),
        input_tokens=counters.input_tokens,
        cached_tokens=counters.cached_input_tokens,
        output_tokens=counters.output_tokens,
        tpot_s=counters.tpot.total,
        tpots=sum(counters.tpot.counts),
    )
    if handed is None:
        return own
    return own.plus(
        LoadTotals(
            decisions=handed.decisions,
            ended=handed.ended,
            fallbacks=handed.fallbacks,
            handed_tokens=handed.tokens,
            handed_bytes=handed.transferred_bytes,
            gain_s=handed.gain_s,
            gains=handed.gains,
            split_gain_s=handed.split_gain_s,
            split_gains=handed.split_gains,
            stage_s={stage: histogram.total for stage, histogram in handed.stages.items()},
            stages={stage: sum(histogram.counts) for stage, histogram in handed.stages.items()},
        )
    )


def _prefill_pace(
    plan: PoolPlan, speed: PoolSpeed | None, busy: BusyPace | None, prompt_tokens: float, fresh_ratio: float
) -> tuple[float | None, str]:
    """Uncached tokens a second of one engine that does nothing else, for prompts as long as those that came."""
    if speed is not None and speed.ttft.points >= LEARNED_POINTS:
        uncached = max(1.0, prompt_tokens * fresh_ratio)
        rate = uncached / prefill_work(uncached, max(uncached, prompt_tokens)) / speed.ttft.slope
        if rate < MOST_TOKENS_PER_S:
            return rate, "first tokens"
    if plan.prefill_tokens_per_s is not None:
        return plan.prefill_tokens_per_s, "declared"
    return _of_busy(None if busy is None else busy.prefill_s)


def _decode_pace(
    plan: PoolPlan, speed: PoolSpeed | None, busy: BusyPace | None, at_sequences: int
) -> tuple[float | None, str]:
    """Tokens a second of one engine that generates for so many requests at once."""
    if speed is not None and speed.tpot.points >= LEARNED_POINTS:
        rate = at_sequences / max(1e-9, speed.tpot.predict(at_sequences))
        if rate < MOST_TOKENS_PER_S:
            return rate, "answers"
    if plan.decode_tokens_per_s is not None:
        return plan.decode_tokens_per_s, "declared"
    return _of_busy(None if busy is None else busy.decode_s)


def _of_busy(token_s: float | None) -> tuple[float | None, str]:
    return (None, "") if not token_s or 1 / token_s > MOST_TOKENS_PER_S else (1 / token_s, "busy time")
