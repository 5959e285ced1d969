"""Advice on prefill and decode apart, from what was measured: `headrace route advise`, in numbers and plain words.

With roles: whether splitting pays for the requests that come, and what ratio of engines they want. Without: what it
would have to cost at most to pay. Nothing is guessed: what was not measured is None, and said.
"""

from collections.abc import Sequence
from math import ceil

import msgspec

from headrace.domain.split_ratio import MeasuredLoad, Ratio, best_ratio, ratio_of
from headrace.domain.split_status import LoadTotals, ModelLoad, PoolPace, SplitStatus

FEW_REQUESTS = 20
"""Below that advice is said to stand on little. Chosen."""
WORTH_MOVING_RATIO = 0.05
BUSY_RATIO = 0.5
"""An engine changes sides only where the busier side is busy to BUSY_RATIO and the move takes off so much. Chosen."""
FULL_RATIO = 0.9
GOOD_RATIO = 0.7
"""The busier side should be so busy at most, on the mean: what is left is for peaks. Both chosen."""
FULL_ENOUGH_RATIO = 0.5
"""A decode engine that had so much of its places taken at once has shown what it can do. Chosen."""
MANY_RATIO = 0.1
"""Fallbacks, or requests without a pair, in so large a share are worth a word. As the alert HeadraceHandoversFail."""
PAIRLESS = {
    "no_pair": "no prefill and decode engine with room: more engines, or higher queue.sequences",
    "kv_layout_mismatch": "no pair whose KV fits: headrace route explain says what differs",
    "pair_rests": "that the best pair had just failed to hand over: see why hand-overs fell back",
}
"""Reasons of `SplitReason` for which there was no pair, and what to do. Counterpart: `routing/disaggregation/core`."""
USUAL_MIN_TOKENS, USUAL_MIN_GAIN_S = 512, 0.02
"""The defaults of `handover.min_tokens` and `min_gain_s`, for pools that have no such section."""


class ModelAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Of one model. Times are means; None: not measured in the window."""

    load: ModelLoad
    has_handover: bool
    split_ratio: float | None = None
    """Share of the requests looked at that were split."""
    gain_s: float | None = None
    """How much sooner the first token of a split request was predicted to come, transfer included, with what those who
    generate are spared."""
    transfer_s: float | None = None
    transfer_bytes_per_s: float | None = None
    fallback_ratio: float | None = None
    """Share of the hand-overs that went back to one engine."""
    present: Ratio | None = None
    wanted: Ratio | None = None
    """Of the same number of engines."""
    interference_s: float | None = None
    """Without hand-overs: how long all who generate at an engine wait, added up, while a prompt is computed there; at
    most, since engines that compute prompts in chunks go on generating."""
    pays: bool | None = None
    verdict: str
    """Why, for a person."""
    changes: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()


class SplitAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Of all models with pools that generate."""

    workers: int
    models: tuple[ModelAdvice, ...]


def advise(status: SplitStatus) -> SplitAdvice:
    """Say what can be said of each model."""
    return SplitAdvice(workers=status.workers, models=tuple(_advise_on(load) for load in status.models))


def _advise_on(load: ModelLoad) -> ModelAdvice:
    has_handover = any(pace.min_tokens is not None for pace in load.pools)
    if not load.totals.requests:
        verdict = "nothing measured yet: no request of this model was answered in the window"
        return ModelAdvice(load=load, has_handover=has_handover, verdict=verdict)
    return _of_halves(load) if has_handover else _of_whole(load)


# --- pools with roles


def _of_halves(load: ModelLoad) -> ModelAdvice:
    totals, missing = load.totals, [*_few(load), *_idle_decodes(load)]
    decided, handed = sum(totals.decisions.values()), sum(totals.ended.values())
    transfers, transfer_s = totals.stages.get("transfer", 0), totals.stage_s.get("transfer", 0.0)
    pays, verdict = _judged(totals)
    fell_back = totals.ended.get("fell-back", 0)
    present, wanted = _ratios(load, missing)
    if transfers and not totals.handed_bytes:
        missing.append("bytes handed over, and their rate: declare pools.<name>.handover.kv_bytes_per_token")
    found = ModelAdvice(
        load=load,
        has_handover=True,
        split_ratio=totals.decisions.get("gain", 0) / decided if decided else None,
        gain_s=totals.split_gain_s / totals.split_gains if totals.split_gains else None,
        transfer_s=transfer_s / transfers if transfers else None,
        transfer_bytes_per_s=totals.handed_bytes / transfer_s if totals.handed_bytes and transfer_s else None,
        fallback_ratio=fell_back / handed if handed else None,
        present=present,
        wanted=wanted,
        pays=pays,
        verdict=verdict,
        not_measured=tuple(missing),
    )
    return msgspec.structs.replace(found, changes=tuple(_changes(found)))


def _judged(totals: LoadTotals) -> tuple[bool | None, str]:
    """Whether splitting pays: the gain predicted for the requests that were split, less what fallbacks cost."""
    reasons = totals.decisions
    decided, split = sum(reasons.values()), reasons.get("gain", 0)
    if not decided:
        return None, "no request was looked at in the window"
    if split and not totals.split_gains:
        return None, "every request is split, as its engines answer nothing alone: there is nothing to compare with"
    if not split and sum(reasons.get(name, 0) for name in PAIRLESS) > decided / 2:
        return None, "most requests found no prefill and decode engine that could work together"
    if not split and totals.gains:
        mean_s = totals.gain_s / totals.gains
        return False, f"of {totals.gains} requests looked at none was predicted to gain enough ({mean_s:.3g} s each)"
    if not split:
        return False, "no request was worth it: too little to compute, mostly cached, or not to be split"
    prefills = totals.stages.get("prefill", 0)
    twice_s = totals.stage_s.get("prefill", 0.0) / prefills if prefills else 0.0
    net_s = totals.split_gain_s - totals.ended.get("fell-back", 0) * twice_s
    each_s, all_s = totals.split_gain_s / totals.split_gains, net_s / decided
    told = f"{split} of {decided} requests were split, each predicted to gain {each_s:.3g} s"
    less = "" if net_s == totals.split_gain_s else ", less what fallbacks cost"
    return net_s > 0, f"{told}: {all_s:.3g} s a request over all{less}"


def _ratios(load: ModelLoad, missing: list[str]) -> tuple[Ratio | None, Ratio | None]:
    """The ratio that there is, and the one that the load wants; what is missing for them is added to `missing`."""
    givers = [pace for pace in load.pools if pace.role == "prefill"]
    takers = [pace for pace in load.pools if pace.role != "prefill"]
    if not givers or not takers:
        missing.append("a ratio: no engines of this model do one of the two alone")
        return None, None
    prefill, decode = _mean([one.prefill_tokens_per_s for one in givers], givers), _decode_rate(takers)
    if prefill is None:
        missing.append("how fast its prefill engines compute: too few prompts, or all alike")
    if decode is None:
        missing.append("how fast its decode engines generate: too few streamed answers of more than one token")
    if prefill is None or decode is None:
        return None, None
    measured = MeasuredLoad(
        prefill_tokens_per_s=load.handed_tokens_per_s,
        whole_prefill_tokens_per_s=load.uncached_tokens_per_s - load.handed_tokens_per_s,
        output_tokens_per_s=load.output_tokens_per_s,
        prefill_rate_tokens_per_s=prefill,
        decode_rate_tokens_per_s=decode,
    )
    counts = sum(one.engines for one in givers), sum(one.engines for one in takers)
    return ratio_of(measured, *counts), best_ratio(measured, sum(counts))


def _changes(found: ModelAdvice) -> list[str]:
    """What to do, what matters most first."""
    load = found.load
    decided, changes = sum(load.totals.decisions.values()), list[str]()
    if found.pays is False:
        roles = ", ".join(f"pools.{pace.pool}" for pace in load.pools if pace.min_tokens is not None)
        changes.append(f"let every engine answer alone: take `disaggregation` out of {roles}")
    if found.pays is not False and found.present is not None and found.wanted is not None:
        changes += _moves(found.present, found.wanted, is_decode_sure=not _idle_decodes(load))
    if found.fallback_ratio is not None and found.fallback_ratio > MANY_RATIO:
        reason = max(load.totals.fallbacks, key=lambda name: load.totals.fallbacks[name], default="not told")
        changes.append(
            f"find out why {found.fallback_ratio:.0%} of the hand-overs fell back, most of them for {reason}: each "
            "prompt of theirs was computed twice"
        )
    for name, remedy in PAIRLESS.items():
        share = load.totals.decisions.get(name, 0) / decided if decided else 0.0
        if share > MANY_RATIO:
            changes.append(f"{share:.0%} of the requests found {remedy}")
    return changes


def _moves(present: Ratio, wanted: Ratio, *, is_decode_sure: bool) -> list[str]:
    """Engines to move or add. Where decode's work may be overstated, only what prefill asks for."""
    moves: list[str] = []
    busy, best = present.utilization_ratio, wanted.utilization_ratio
    is_sure = is_decode_sure or wanted.prefill > present.prefill
    if is_sure and busy > BUSY_RATIO and busy - best > WORTH_MOVING_RATIO:
        moves.append(
            f"{wanted.prefill} prefill and {wanted.decode} decode engines instead of {present.prefill} and "
            f"{present.decode}: the busier side would be {best:.0%} busy instead of {busy:.0%}"
        )
    if best > FULL_RATIO and (is_decode_sure or wanted.prefill_busy / wanted.prefill > FULL_RATIO):
        enough = ceil((wanted.prefill_busy + wanted.decode_busy) / GOOD_RATIO)
        moves.append(f"more engines: these are {best:.0%} busy at best; about {enough} would be {GOOD_RATIO:.0%} busy")
    return moves


# --- pools without


def _of_whole(load: ModelLoad) -> ModelAdvice:
    """What splitting could save is what prompts cost those who generate; what it would cost nobody has measured."""
    totals, missing, pools = load.totals, _few(load), load.pools
    engines = sum(pace.engines for pace in pools)
    prefill = _mean([one.prefill_tokens_per_s for one in pools], pools)
    if prefill is None:
        missing.append(
            "how fast prompts are computed: needs some minutes of traffic, or pools.<name>.rates.prefill_tokens_per_s"
        )
    if not totals.tpots:
        missing.append("time per output token, and so how many generate at once: no answer was streamed")
    if prefill is None or not totals.tpots or not engines:
        verdict = "whether splitting would pay cannot be told yet"
        return ModelAdvice(load=load, has_handover=False, verdict=verdict, not_measured=tuple(missing))
    prompt_tokens = max(0, totals.input_tokens - totals.cached_tokens) / totals.requests
    prefill_s = prompt_tokens / prefill
    running = totals.tpot_s / totals.tpots * load.output_tokens_per_s / engines
    interference_s = prefill_s * running
    told = (
        f"the mean prompt has {prompt_tokens:.0f} tokens to compute, {prefill_s:.3g} s during which {running:.2g} "
        f"others generate there: {interference_s:.3g} s of waiting at most"
    )
    longest_s = interference_s - USUAL_MIN_GAIN_S
    pays = False if longest_s <= 0 else None
    if pays is False:
        verdict = f"{told}, less than a hand-over must gain ({USUAL_MIN_GAIN_S:g} s)"
    elif prompt_tokens < USUAL_MIN_TOKENS:
        verdict = f"{told}; only prompts with {USUAL_MIN_TOKENS} tokens to compute and more are handed over"
        missing.append("how many prompts are longer than the mean")
    else:
        verdict = f"{told}; splitting would pay where handing a prompt over takes less than {longest_s:.3g} s"
    if pays is None:
        missing.append("how long handing a prompt over takes: these engines never did")
    if engines < 2:
        verdict += "; it takes a second engine"
    return ModelAdvice(
        load=load,
        has_handover=False,
        interference_s=interference_s,
        pays=pays,
        verdict=verdict,
        not_measured=tuple(missing),
    )


# --- both


def _few(load: ModelLoad) -> list[str]:
    requests = load.totals.requests
    told = f"enough to rely on: {requests} requests in the window; ask again after {FEW_REQUESTS}"
    return [told] if requests < FEW_REQUESTS else []


def _idle_decodes(load: ModelLoad) -> list[str]:
    """Decode engines that were never seen to do what they can: their work is overstated, in engines."""
    doubts: list[str] = []
    for pace in load.pools:
        at, places = pace.at_sequences or 0, pace.places
        if pace.role == "prefill" or (places is not None and at >= places * FULL_ENOUGH_RATIO):
            continue
        room = "no bound is declared (queue.sequences)" if places is None else f"it has room for {places}"
        doubts.append(
            f"an engine of {pace.pool} with more than {at} requests at once ({room}): fewer decode engines than said "
            "here may do"
        )
    return doubts


def _decode_rate(pools: Sequence[PoolPace]) -> float | None:
    return _mean([one.decode_tokens_per_s for one in pools], pools)


def _mean(rates: Sequence[float | None], pools: Sequence[PoolPace]) -> float | None:
    """Of one engine, over pools of several sizes; None: no pool's is known."""
    known = [(rate, pool.engines) for rate, pool in zip(rates, pools, strict=True) if rate is not None and pool.engines]
    return sum(rate * engines for rate, engines in known) / sum(engines for _, engines in known) if known else None
