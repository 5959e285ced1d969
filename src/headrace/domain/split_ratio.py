"""What ratio of prefill to decode engines traffic wants, from measured loads: arithmetic alone."""

import msgspec


class MeasuredLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One window of one model's requests, whole and split ones. Tokens are uncached ones where they are a prompt's."""

    prefill_tokens_per_s: float
    """Of prompts that prefill engines compute."""
    whole_prefill_tokens_per_s: float = 0.0
    """Of those that engines compute which also answer them."""
    output_tokens_per_s: float
    prefill_rate_tokens_per_s: float
    """What one engine computes when it does nothing else."""
    decode_rate_tokens_per_s: float
    """What one engine generates for all its requests together."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """So many engines for either side, and how busy they are with a load."""

    prefill: int
    decode: int
    prefill_busy: float
    """Engines' worth of prefill work."""
    decode_busy: float
    """The same of the other side: answers, and prompts that are not handed over."""

    @property
    def utilization_ratio(self) -> float:
        """Of the busier side; 1 and more: the load is too much for so many engines."""
        return max(self.prefill_busy / self.prefill, self.decode_busy / self.decode)


def ratio_of(load: MeasuredLoad, prefill: int, decode: int) -> Ratio | None:
    """Return how busy so many engines are; None: a side has none."""
    if prefill < 1 or decode < 1:
        return None
    whole_busy = load.whole_prefill_tokens_per_s / load.prefill_rate_tokens_per_s
    return Ratio(
        prefill=prefill,
        decode=decode,
        prefill_busy=load.prefill_tokens_per_s / load.prefill_rate_tokens_per_s,
        decode_busy=load.output_tokens_per_s / load.decode_rate_tokens_per_s + whole_busy,
    )


def best_ratio(load: MeasuredLoad, engines: int) -> Ratio | None:
    """Return the split of `engines` whose busier side is least busy; None: no load, or fewer than two engines."""
    tried = [found for prefill in range(1, engines) if (found := ratio_of(load, prefill, engines - prefill))]
    if not tried or tried[0].prefill_busy + tried[0].decode_busy <= 0:
        return None
    return min(tried, key=lambda found: found.utilization_ratio)
