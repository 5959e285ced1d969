"""What ratio of prefill to decode engines this traffic wants, and whether splitting pays, from measured loads."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """One window of one model's requests, whole and split ones."""

    prefill_tokens_per_s: float
    """Uncached ones."""
    output_tokens_per_s: float
    prefill_rate_tokens_per_s: float
    """What one engine computes when it does nothing else."""
    decode_rate_tokens_per_s: float
    """What one engine generates for all its requests together, within the pool's time per token."""
    mean_gain_s: float | None = None
    """Of the requests that were looked at (`SplitVerdict.gain_s`); None: none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAdvice:
    """For so many engines in all."""

    prefill: int
    decode: int
    prefill_busy: float
    """Engines' worth of prefill work."""
    decode_busy: float
    utilization_ratio: float
    """Of the busier side with the counts above; 1 and more: the traffic is too much for so many engines."""
    pays: bool | None
    """Whether splitting pays: whether the mean predicted gain is above 0. None: none was predicted."""


def advise(load: MeasuredLoad, engines: int) -> RatioAdvice | None:
    """Return the split of `engines` whose busier side is least busy; None: no load, or fewer than two engines."""
    prefill_busy = load.prefill_tokens_per_s / load.prefill_rate_tokens_per_s
    decode_busy = load.output_tokens_per_s / load.decode_rate_tokens_per_s
    if engines < 2 or prefill_busy + decode_busy <= 0:
        return None

    def busier(prefill: int) -> float:
        return max(prefill_busy / prefill, decode_busy / (engines - prefill))

    prefill = min(range(1, engines), key=busier)
    return RatioAdvice(
        prefill=prefill,
        decode=engines - prefill,
        prefill_busy=prefill_busy,
        decode_busy=decode_busy,
        utilization_ratio=busier(prefill),
        pays=None if load.mean_gain_s is None else load.mean_gain_s > 0,
    )
