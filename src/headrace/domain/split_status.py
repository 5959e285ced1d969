"""What is measured of a model's traffic with an eye on prefill and decode apart: one worker's, or all added up.

Counterparts: `gateway/worker_samples.py`, which takes it, and `split_advice.py`, which advises by it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


class LoadTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one model since a worker started, or of a window. Units: tokens, bytes, seconds."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    """Of those, found in a prefix cache; of a split request, in prefill's."""
    output_tokens: int = 0
    tpot_s: float = 0.0
    tpots: int = 0
    """The sum of the mean gaps between tokens, and the answers that had one."""
    decisions: dict[str, int] = {}
    """Requests by why they were split (gain), or not."""
    ended: dict[str, int] = {}
    """Hand-overs by how they ended."""
    fallbacks: dict[str, int] = {}
    """By reason."""
    handed_tokens: float = 0.0
    """Of prompts that were handed over, estimated."""
    handed_bytes: float = 0.0
    """0 also where the size of a token's KV is not known."""
    gain_s: float = 0.0
    gains: int = 0
    """Predicted for all requests of which it was; the two below: for those that were split."""
    split_gain_s: float = 0.0
    split_gains: int = 0
    stage_s: dict[str, float] = {}
    stages: dict[str, int] = {}
    """prefill_queue, prefill, transfer, decode_queue: the sum of times, and how many."""

    def less(self, before: "LoadTotals") -> "LoadTotals":
        """What came since `before`."""
        return _combined(self, before, -1)

    def plus(self, other: "LoadTotals") -> "LoadTotals":
        """Both together."""
        return _combined(self, other, 1)


def _combined(one: LoadTotals, other: LoadTotals, sign: int) -> LoadTotals:
    values: dict[str, Any] = {}
    for name in LoadTotals.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        values[name] = _counted(here, there, sign) if isinstance(here, dict) else here + sign * there
    return LoadTotals(**values)


def _counted(here: Any, there: Any, sign: int) -> dict[str, Any]:
    summed = {key: here.get(key, 0) + sign * there.get(key, 0) for key in here | there}
    return {key: value for key, value in summed.items() if value}


class PoolPace(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: what its engines can do, as far as that was learned. Rates are those of one engine."""

    pool: str
    role: str
    """prefill, decode or both."""
    engines: int
    usable_engines: int
    prefill_tokens_per_s: float | None = None
    """Uncached ones, of prompts as long as those that came, when it does nothing else. None: not learned."""
    prefill_from: str = ""
    """first tokens, busy time (what whole engines did while they had work) or declared (`pools.<name>.rates`)."""
    prompts: int = 0
    """First tokens from which it was learned."""
    decode_tokens_per_s: float | None = None
    """Of all its requests together, `at_sequences` at once. None: not learned."""
    decode_from: str = ""
    """answers, busy time or declared."""
    answers: int = 0
    at_sequences: int | None = None
    """The most that generated at once at one engine in the window: more was never measured. Of several workers the sum
    of what each has sent there, which may have been at different moments. None: nothing was seen to generate."""
    places: int | None = None
    """How many may, as declared. None: nothing is declared."""
    min_tokens: int | None = None
    """`handover.min_tokens` and `min_gain_s`; None: its engines have no role."""
    min_gain_s: float | None = None


class ModelLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One model in the window."""

    model: str
    window_s: float
    """How far back it reaches: an hour, or since the oldest worker started."""
    requests_per_s: float
    uncached_tokens_per_s: float
    output_tokens_per_s: float
    handed_tokens_per_s: float
    """Uncached tokens of prompts that prefill engines computed for others, estimated."""
    totals: LoadTotals
    pools: tuple[PoolPace, ...]


class SplitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All models with pools, of one worker or of all."""

    workers: int
    models: tuple[ModelLoad, ...]


def add_up_loads(found: Iterable[SplitStatus]) -> SplitStatus:
    """All workers together: counts and rates of traffic are summed; of what engines can do, see `_pool`."""
    statuses = list(found)
    by_model: dict[str, list[ModelLoad]] = {}
    for load in (load for status in statuses for load in status.models):
        by_model.setdefault(load.model, []).append(load)
    return SplitStatus(
        workers=sum(status.workers for status in statuses),
        models=tuple(_model(loads) for loads in by_model.values()),
    )


def _model(loads: Sequence[ModelLoad]) -> ModelLoad:
    first, totals = loads[0], loads[0].totals
    by_pool: dict[str, list[PoolPace]] = {}
    for pace in (pace for load in loads for pace in load.pools):
        by_pool.setdefault(pace.pool, []).append(pace)
    for load in loads[1:]:
        totals = totals.plus(load.totals)
    return ModelLoad(
        model=first.model,
        window_s=max(load.window_s for load in loads),
        requests_per_s=sum(load.requests_per_s for load in loads),
        uncached_tokens_per_s=sum(load.uncached_tokens_per_s for load in loads),
        output_tokens_per_s=sum(load.output_tokens_per_s for load in loads),
        handed_tokens_per_s=sum(load.handed_tokens_per_s for load in loads),
        totals=totals,
        pools=tuple(_pool(paces) for paces in by_pool.values()),
    )


def _pool(paces: Sequence[PoolPace]) -> PoolPace:
    """One pool as several workers know it. Prefill's rate is the mean, weighted by what each has learned from; decode's
    are summed, since each worker knows only what it has sent there itself.
    """
    prefill = [(one.prefill_tokens_per_s, max(1, one.prompts)) for one in paces if one.prefill_tokens_per_s is not None]
    decode = [one.decode_tokens_per_s for one in paces if one.decode_tokens_per_s is not None]
    seen = [one.at_sequences for one in paces if one.at_sequences is not None]
    weight = sum(points for _, points in prefill)
    return msgspec.structs.replace(
        paces[0],
        engines=max(one.engines for one in paces),
        usable_engines=max(one.usable_engines for one in paces),
        prefill_tokens_per_s=sum(rate * points for rate, points in prefill) / weight if prefill else None,
        prompts=sum(one.prompts for one in paces),
        decode_tokens_per_s=sum(decode) if decode else None,
        answers=sum(one.answers for one in paces),
        at_sequences=sum(seen) if seen else None,
    )
